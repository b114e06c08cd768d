#include "motley/run/torch/training_start.h"

#include <fmt/format.h>

#include <filesystem>

#include "motley/base/json_fields.h"
#include "motley/base/text.h"

namespace motley::run {
namespace {

class Starting {
 public:
  Starting(TrainedTensors& tensors, const CheckpointStore& checkpoints)
      : tensors_(tensors), session_(tensors.session()), checkpoints_(checkpoints) {}
  Result<TrainingStart> run() {
    if (session_.rank == 0 && session_.job.resume) MOTLEY_RETURN_IF_ERROR(resume());
    if (session_.rendezvous) MOTLEY_RETURN_IF_ERROR(share_weights());
    return start_;
  }

 private:
  Result<void> load(const Checkpoint& checkpoint);
  Result<void> resume();
  Result<void> follow(const std::string& checkpoint);
  Result<void> agree_on_files(std::int64_t first_step);
  Result<void> share_weights();

  TrainedTensors& tensors_;
  const WorkerSession& session_;
  const CheckpointStore& checkpoints_;
  TrainingStart start_;
};

Result<void> Starting::load(const Checkpoint& checkpoint) {
  MOTLEY_RETURN_IF_ERROR(verify_checkpoint(checkpoint, checkpoint_state(session_, start_.point)));
  MOTLEY_RETURN_IF_ERROR(tensors_.load(checkpoint));
  TrainingPoint& point = start_.point;
  point.step = point.saved_step = checkpoint.state.step;
  point.samples = checkpoint.state.samples;
  point.best = checkpoint.state.best;
  return {};
}

Result<void> Starting::resume() {
  MOTLEY_ASSIGN(const std::optional<Checkpoint> found,
                checkpoints_.open_latest(TensorFiles::Extent::kSome));
  if (!found) return {};
  MOTLEY_RETURN_IF_ERROR(load(*found));
  start_.resumed_from = start_.point.saved_path = found->path;
  return {};
}

/// Loads the local parts of the checkpoint that rank 0 resumed from; rank 0 sends the rest.
Result<void> Starting::follow(const std::string& checkpoint) {
  std::error_code fault;
  if (!std::filesystem::exists(checkpoint, fault))
    return usage_error(
        "run.checkpoint",
        fmt::format("{}: rank 0 resumes from it, rank {} ({}) does not see it; all ranks must see "
                    "one run directory where they keep parts of the parameters: put it on a file "
                    "system that their hosts share",
                    checkpoint, session_.rank, session_.device().name));
  MOTLEY_ASSIGN(const Checkpoint found, open_checkpoint(checkpoint, TensorFiles::Extent::kSome));
  return load(found);
}

/// Verifies that all ranks took their parts from the same files.
Result<void> Starting::agree_on_files(std::int64_t first_step) {
  Rendezvous& rendezvous = *session_.rendezvous;
  const std::optional<RankWeights>& own = tensors_.own_weights();
  std::string model_file;
  if (own) {
    model_file = own->model_file;
  } else {
    MOTLEY_ASSIGN(model_file, hash_model_file(session_.job.model_path));
  }
  MOTLEY_RETURN_IF_ERROR(rendezvous.agree("model file", model_file));
  MOTLEY_ASSIGN(const std::string checkpoint, rendezvous.get("resumed from"));
  if (own && own->step != first_step)
    return stale_error("run.rank-files",
                       fmt::format("rank {} was given parts of step {}, rank 0 goes on from {}",
                                   session_.rank, own->step, first_step));
  const bool is_given = session_.rank == 0 || own.has_value();
  if (!is_given && !checkpoint.empty()) {
    // The coordinator's ranks use its run directory; a rank 0 elsewhere got a copy of it.
    MOTLEY_RETURN_IF_ERROR(
        follow(session_.is_elsewhere(session_.rank) ? checkpoints_.latest() : checkpoint));
    if (start_.point.step != first_step)
      return stale_error("run.rank-files",
                         fmt::format("rank {} has a checkpoint of step {}, rank 0 goes on from {}",
                                     session_.rank, start_.point.step, first_step));
  }
  return {};
}

/// Makes replicas identical to rank 0 and tells them the first step. Parts: from equal files.
Result<void> Starting::share_weights() {
  Rendezvous& rendezvous = *session_.rendezvous;
  if (session_.rank == 0) {
    MOTLEY_RETURN_IF_ERROR(rendezvous.set("resumed from", start_.resumed_from));
    MOTLEY_RETURN_IF_ERROR(rendezvous.set("best", start_.point.best
                                                      ? fields_to_json(*start_.point.best).dump()
                                                      : std::string("none")));
    MOTLEY_RETURN_IF_ERROR(rendezvous.set("samples", std::to_string(start_.point.samples)));
    MOTLEY_RETURN_IF_ERROR(rendezvous.set("first step", std::to_string(start_.point.step)));
  }
  MOTLEY_ASSIGN(const std::string text, rendezvous.get("first step", session_.patience()));
  const std::int64_t first_step = find_integer(text).value_or(0);
  MOTLEY_RETURN_IF_ERROR(tensors_.share_parts());
  if (tensors_.some_have_parts()) MOTLEY_RETURN_IF_ERROR(agree_on_files(first_step));
  MOTLEY_ASSIGN(const std::string best, rendezvous.get("best"));
  if (best != "none") {
    MOTLEY_ASSIGN(const Json json, parse_json(best, "best"));
    MOTLEY_ASSIGN(start_.point.best, fields_from_json<Best>(json, "best"));
  }
  start_.point.step = first_step;
  MOTLEY_ASSIGN(const std::string samples, rendezvous.get("samples"));
  start_.point.samples = find_integer(samples).value_or(0);
  if (session_.rank != 0) start_.point.saved_step = start_.point.step > 0 ? start_.point.step : -1;
  MOTLEY_RETURN_IF_ERROR(rendezvous.barrier("loaded", session_.patience()));
  return tensors_.take_from_rank_0();
}

}  // namespace

Result<TrainingStart> start_training(TrainedTensors& tensors, const CheckpointStore& checkpoints) {
  return Starting(tensors, checkpoints).run();
}

CheckpointState checkpoint_state(const WorkerSession& session, const TrainingPoint& point) {
  const auto& batches = session.job.batches;
  return {.step = point.step,
          .samples = point.samples,
          .seed = session.job.seed,
          .shuffle = session.job.shuffle,
          .global_batch = batches ? batches->first : session.program.global_batch,
          .model_hash = session.program.model_hash,
          .best = point.best};
}

}  // namespace motley::run
