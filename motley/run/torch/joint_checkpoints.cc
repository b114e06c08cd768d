#include "motley/run/torch/joint_checkpoints.h"

#include <fmt/format.h>

#include <filesystem>

#include "motley/base/json_fields.h"
#include "motley/run/input_specs.h"
#include "motley/run/torch/exchange/file_transfer.h"

namespace motley::run {
namespace {

std::string transfer_key(std::int64_t step, int rank, const std::string& name) {
  return fmt::format("checkpoint/{}/{}/{}", step, rank, name);
}

std::vector<std::string> names_of(const WrittenFiles& files) {
  std::vector<std::string> names;
  for (const auto* each : {&files.model, &files.optimizer})
    for (const auto& [name, hash] : *each) names.push_back(name);
  return names;
}

}  // namespace

JointCheckpoints::JointCheckpoints(const TrainedTensors& tensors)
    : tensors_(tensors), session_(tensors.session()), store_(session_.job.run_dir) {}

/// Names a rank for messages, with its host if it is not the coordinator's.
std::string JointCheckpoints::name_of(int rank) const {
  const WorkerDevice& device = session_.job.devices[static_cast<std::size_t>(rank)];
  if (device.host.empty()) return fmt::format("rank {}", rank);
  return fmt::format("rank {} ({}, host {})", rank, device.name, device.host);
}

bool JointCheckpoints::keeps_own() const {
  return !session_.job.kept.empty() && !session_.device().host.empty() &&
         session_.is_elsewhere(session_.rank);
}

/// Returns the store that this rank writes to: rank 0's, or its own on another machine.
CheckpointStore JointCheckpoints::own_store() const {
  if (!session_.is_elsewhere(session_.rank)) return store_;
  const std::string& folder = keeps_own() ? session_.job.kept : session_.job.run_dir;
  return CheckpointStore(fmt::format("{}/rank-{}", folder, session_.rank));
}

Result<void> JointCheckpoints::receive_files(const WrittenFiles& files, int rank) const {
  for (const std::string& name : names_of(files))
    MOTLEY_RETURN_IF_ERROR(receive_file(*session_.rendezvous, transfer_key(state_.step, rank, name),
                                        store_.half_written(state_.step) + "/" + name,
                                        session_.patience()));
  return {};
}

/// Sends the files to rank 0 and keeps none here.
Result<void> JointCheckpoints::send_files(const WrittenFiles& files) const {
  const std::string folder = own_store().half_written(state_.step);
  for (const std::string& name : names_of(files))
    MOTLEY_RETURN_IF_ERROR(send_file(*session_.rendezvous,
                                     transfer_key(state_.step, session_.rank, name),
                                     folder + "/" + name, session_.patience()));
  std::error_code code;
  // Removes the whole store, which belongs to this rank alone.
  std::filesystem::remove_all(std::filesystem::path(folder).parent_path().parent_path(), code);
  return {};
}

/// Gives the files their final names here, and records where they are for rank 0.
Result<void> JointCheckpoints::keep_files(WrittenFiles& files) const {
  MOTLEY_ASSIGN(const std::string folder, own_store().keep_part(state_.step));
  // The job's folder is named after the run and the cut, below the host's kept folder.
  const std::filesystem::path root =
      std::filesystem::path(session_.job.kept).parent_path().parent_path();
  for (const std::string& name : names_of(files))
    files.held[name] = {session_.device().host,
                        std::filesystem::path(folder).lexically_relative(root).string()};
  return {};
}

/// Completes the folder as rank 0. Ranks that keep parts wait for the folder and report what they
/// wrote, or why not. Nothing is given up before all have reported.
Result<std::string> JointCheckpoints::finish_checkpoint() const {
  MOTLEY_RETURN_IF_ERROR(store_.begin(state_.step));
  const std::string key = fmt::format("checkpoint/{}/", state_.step);
  const bool is_shared = tensors_.some_have_parts() && session_.rendezvous != nullptr;
  if (is_shared) MOTLEY_RETURN_IF_ERROR(session_.rendezvous->set(key + "folder", "ready"));
  std::vector<Result<WrittenFiles>> parts = {tensors_.write(own_store(), state_.step)};
  for (int rank = 1; is_shared && rank < session_.size; ++rank) {
    MOTLEY_ASSIGN(const std::string text,
                  session_.rendezvous->get(fmt::format("{}{}", key, rank), session_.patience()));
    if (!text.starts_with('{')) {
      parts.push_back(
          runtime_error("run.checkpoint-write", fmt::format("{}: {}", name_of(rank), text)));
      continue;
    }
    MOTLEY_ASSIGN(const Json json, parse_json(text, key));
    parts.push_back(fields_from_json<WrittenFiles>(json, key));
    if (parts.back() && parts.back()->held.empty() && session_.is_elsewhere(rank))
      MOTLEY_RETURN_IF_ERROR(receive_files(*parts.back(), rank));
  }
  std::vector<WrittenFiles> written;
  for (Result<WrittenFiles>& part : parts) {
    MOTLEY_ASSIGN(WrittenFiles files, std::move(part));
    written.push_back(std::move(files));
  }
  return store_.finish(state_, written);
}

Result<std::string> JointCheckpoints::write_checkpoint() const {
  auto written = finish_checkpoint();
  if (written) return written;
  Error error = store_.give_up(state_.step, written.error());
  // If others are lost meanwhile, that is the cause, and the remaining ranks may continue.
  const bool is_elastic = session_.job.changes && session_.job.changes->is_elastic;
  if (is_elastic) error.code = written.error().code;
  if (!session_.device().host.empty()) error.message = name_of(0) + ": " + error.message;
  return tl::make_unexpected(std::move(error));
}

/// Takes part as another rank: writes its files and waits for rank 0 to finish.
Result<std::string> JointCheckpoints::join() const {
  const std::string key = fmt::format("checkpoint/{}/", state_.step);
  Rendezvous& rendezvous = *session_.rendezvous;
  if (tensors_.some_have_parts()) {
    MOTLEY_ASSIGN(const std::string folder, rendezvous.get(key + "folder", session_.patience()));
    Result<WrittenFiles> files = runtime_error("run.peer-lost", "rank 0 could not make a folder");
    const bool is_away = session_.is_elsewhere(session_.rank);
    if (is_away) MOTLEY_RETURN_IF_ERROR(own_store().begin(state_.step));
    if (folder == "ready") files = tensors_.write(own_store(), state_.step);
    if (files && keeps_own()) {
      if (const auto kept = keep_files(*files); !kept) files = tl::make_unexpected(kept.error());
    }
    MOTLEY_RETURN_IF_ERROR(
        rendezvous.set(fmt::format("{}{}", key, session_.rank),
                       files ? fields_to_json(*files).dump() : files.error().message));
    if (is_away && files && !keeps_own()) MOTLEY_RETURN_IF_ERROR(send_files(*files));
  }
  MOTLEY_ASSIGN(const std::string outcome, rendezvous.get(key + "end", session_.patience()));
  if (outcome == "whole") return std::string();
  return runtime_error("run.peer-lost", fmt::format("rank {}: rank 0 could not write the "
                                                    "checkpoint of step {}",
                                                    session_.rank, state_.step));
}

Result<std::string> JointCheckpoints::lead() const {
  const auto written = write_checkpoint();
  if (session_.rendezvous) {
    const std::string key = fmt::format("checkpoint/{}/", state_.step);
    if (!written) MOTLEY_RETURN_IF_ERROR(session_.rendezvous->set(key + "folder", "failed"));
    MOTLEY_RETURN_IF_ERROR(session_.rendezvous->set(key + "end", written ? "whole" : "failed"));
  }
  return written;
}

Result<std::string> JointCheckpoints::write(const CheckpointState& state) {
  state_ = state;
  return session_.rank == 0 ? lead() : join();
}

Result<void> JointCheckpoints::publish(const std::string& checkpoint, bool has_best) const {
  // On another machine, the coordinator publishes what it received.
  if (has_own_directories(session_.job) && !session_.device().host.empty()) return {};
  MOTLEY_ASSIGN(const HeldFiles held, held_files(checkpoint));
  if (!held.empty()) return {};  // `consolidate --hosts` combines the files
  EndModels models{checkpoint, has_best, std::nullopt};
  // Optimizer states are sharded between ranks; this rank may have none.
  MOTLEY_ASSIGN(const bool has_average, has_averages(checkpoint));
  if (has_average) models.averages = canonical_names(tensors_.model()->graph);
  return store_.publish_all(models);
}

}  // namespace motley::run
