#include "motley/run/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "motley/base/file.h"
#include "motley/base/random.h"
#include "motley/base/text.h"

namespace motley::run {
namespace {

namespace fs = std::filesystem;
constexpr const char* kSchema = "motley.checkpoint/1";
constexpr const char* kPrefix = "step-";
constexpr const char* kUnfinished = ".tmp";

std::string step_name(std::int64_t step) { return fmt::format("{}{:08}", kPrefix, step); }

bool is_checkpoint_name(const std::string& name) {
  return name.starts_with(kPrefix) && find_integer(name.substr(std::strlen(kPrefix))).has_value();
}

Result<void> sync_path(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = file >= 0 && ::fsync(file) == 0;
  const int fault = errno;
  if (file >= 0) ::close(file);
  if (synced) return {};
  return runtime_error("run.checkpoint-write", fmt::format("{}: {}", path, std::strerror(fault)));
}

Result<std::string> hash_file(const std::string& path) {
  MOTLEY_ASSIGN(const MappedFile file, MappedFile::open(path));
  return hash_hex({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
}

/// Names of whole checkpoints, oldest first.
std::vector<std::string> checkpoint_names(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code fault;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, fault))
    if (is_checkpoint_name(entry.path().filename().string()))
      names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return std::pair(a.size(), a) < std::pair(b.size(), b);
  });
  return names;
}

Json state_to_json(const CheckpointState& state) {
  return Json{{"schema", kSchema},
              {"step", state.step},
              {"seed", state.seed},
              {"shuffle", state.shuffle ? Json(*state.shuffle) : Json(nullptr)},
              {"global_batch", state.global_batch},
              {"data_position", state.step * state.global_batch},
              {"model_hash", state.model_hash}};
}

struct StateFile {
  CheckpointState state;
  std::string model_file_hash, optimizer_file_hash;
};

Result<StateFile> state_from_json(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  MOTLEY_ASSIGN(const std::string schema, object.string("schema"));
  if (schema != kSchema)
    return usage_error("run.checkpoint",
                       fmt::format("{}: found schema '{}', wanted '{}'", where, schema, kSchema));
  StateFile file;
  MOTLEY_ASSIGN(file.state.step, object.integer("step"));
  MOTLEY_ASSIGN(const Json* seed, object.member("seed"));
  MOTLEY_ASSIGN(const Json* shuffle, object.member("shuffle"));
  MOTLEY_ASSIGN(file.state.global_batch, object.integer("global_batch"));
  MOTLEY_ASSIGN(const std::int64_t position, object.integer("data_position"));
  MOTLEY_ASSIGN(file.state.model_hash, object.string("model_hash"));
  MOTLEY_ASSIGN(file.model_file_hash, object.string("model_file_hash"));
  MOTLEY_ASSIGN(file.optimizer_file_hash, object.string("optimizer_file_hash"));
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  const bool sound = seed->is_number_unsigned() &&
                     (shuffle->is_null() || shuffle->is_number_unsigned()) &&
                     file.state.step >= 0 && file.state.global_batch > 0 &&
                     position / file.state.global_batch == file.state.step;
  if (!sound) return usage_error("run.checkpoint", where + ": a value is out of range");
  file.state.seed = seed->get<std::uint64_t>();
  if (!shuffle->is_null()) file.state.shuffle = shuffle->get<std::uint64_t>();
  return file;
}

Result<Safetensors> open_checked(const std::string& path, const std::string& wanted_hash) {
  MOTLEY_ASSIGN(const std::string hash, hash_file(path));
  if (hash != wanted_hash)
    return usage_error("run.checkpoint",
                       fmt::format("{}: found hash {}, wanted {} (state.json): the file was "
                                   "damaged or changed",
                                   path, hash, wanted_hash));
  return Safetensors::open(path);
}

Result<Checkpoint> open_checkpoint(const std::string& folder) {
  const std::string state_path = folder + "/state.json";
  MOTLEY_ASSIGN(const std::string text, read_file(state_path));
  MOTLEY_ASSIGN(const Json json, parse_json(text, state_path));
  MOTLEY_ASSIGN(const StateFile file, state_from_json(json, state_path));
  MOTLEY_ASSIGN(Safetensors model,
                open_checked(folder + "/model.safetensors", file.model_file_hash));
  MOTLEY_ASSIGN(Safetensors optimizer,
                open_checked(folder + "/optimizer.safetensors", file.optimizer_file_hash));
  return Checkpoint{folder, file.state, std::move(model), std::move(optimizer)};
}

/// What a person can do about a damaged checkpoint.
std::string way_out(const std::vector<std::string>& names, const std::string& bad,
                    const std::string& folder) {
  std::string previous;
  for (const std::string& name : names)
    if (name != bad) previous = name;
  const std::string then =
      previous.empty() ? "start from the beginning" : fmt::format("go on from {}", previous);
  return fmt::format("; remove {}/{} and run again to {}", folder, bad, then);
}

}  // namespace

CheckpointStore::CheckpointStore(const std::string& run_dir)
    : run_dir_(run_dir), folder_(run_dir + "/checkpoint") {}

Result<void> CheckpointStore::write_files(const std::string& folder, const CheckpointState& state,
                                          std::span<const NamedTensor> model,
                                          std::span<const NamedTensor> optimizer) const {
  std::error_code fault;
  fs::remove_all(folder, fault);
  fs::create_directories(folder, fault);
  if (fault) return runtime_error("run.checkpoint-write", folder + ": " + fault.message());
  const std::string model_path = folder + "/model.safetensors";
  const std::string optimizer_path = folder + "/optimizer.safetensors";
  MOTLEY_RETURN_IF_ERROR(write_safetensors(model_path, model, {}));
  MOTLEY_RETURN_IF_ERROR(write_safetensors(optimizer_path, optimizer, {}));
  Json json = state_to_json(state);
  MOTLEY_ASSIGN(json["model_file_hash"], hash_file(model_path));
  MOTLEY_ASSIGN(json["optimizer_file_hash"], hash_file(optimizer_path));
  MOTLEY_RETURN_IF_ERROR(write_file_atomic(folder + "/state.json", json.dump(2) + "\n"));
  return sync_path(folder);
}

Result<std::string> CheckpointStore::write(const CheckpointState& state,
                                           std::span<const NamedTensor> model,
                                           std::span<const NamedTensor> optimizer) const {
  const std::string name = step_name(state.step);
  const std::string final_path = folder_ + "/" + name, half = final_path + kUnfinished;
  const std::string previous = latest();
  std::error_code fault;
  const auto written = write_files(half, state, model, optimizer);
  if (!written) {
    fs::remove_all(half, fault);
    const std::string kept =
        previous.empty() ? "there is no earlier one" : fmt::format("{} is kept", previous);
    Error error = written.error();
    error.kind = ErrorKind::kRuntime;
    error.code = "run.checkpoint-write";
    return with_context(fmt::format("checkpoint of step {} not written ({})", state.step, kept),
                        std::move(error));
  }
  fs::remove_all(final_path, fault);  // of an earlier run with --resume never
  fs::rename(half, final_path, fault);
  const std::string link = folder_ + "/latest" + kUnfinished;
  std::error_code ignored;
  fs::remove(link, ignored);
  if (!fault) fs::create_directory_symlink(name, link, fault);
  if (!fault) fs::rename(link, folder_ + "/latest", fault);
  if (fault) return runtime_error("run.checkpoint-write", final_path + ": " + fault.message());
  MOTLEY_RETURN_IF_ERROR(sync_path(folder_));
  remove_others(final_path, previous);
  return final_path;
}

void CheckpointStore::remove_others(const std::string& newest, const std::string& previous) const {
  std::error_code fault;
  std::vector<fs::path> old;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, fault)) {
    const std::string name = entry.path().filename().string();
    const bool kept = entry.path() == newest || entry.path() == previous;
    const bool half = name.starts_with(kPrefix) && name.ends_with(kUnfinished);
    if (!kept && (half || is_checkpoint_name(name))) old.push_back(entry.path());
  }
  for (const fs::path& path : old) fs::remove_all(path, fault);
}

std::string CheckpointStore::latest() const {
  std::error_code fault;
  const fs::path target = fs::read_symlink(folder_ + "/latest", fault);
  if (!fault && fs::is_directory(folder_ / target, fault)) return (folder_ / target).string();
  const std::vector<std::string> names = checkpoint_names(folder_);
  return names.empty() ? "" : folder_ + "/" + names.back();
}

Result<std::optional<Checkpoint>> CheckpointStore::open_latest() const {
  const std::string path = latest();
  if (path.empty()) return std::nullopt;
  auto checkpoint = open_checkpoint(path);
  if (checkpoint) return std::optional<Checkpoint>(std::move(*checkpoint));
  Error error = std::move(checkpoint).error();
  error.kind = ErrorKind::kUsage;
  error.code = "run.checkpoint";
  error.message += way_out(checkpoint_names(folder_), fs::path(path).filename(), folder_);
  return tl::make_unexpected(std::move(error));
}

Result<void> CheckpointStore::publish(const std::string& checkpoint) const {
  const std::string source = checkpoint + "/model.safetensors";
  const std::string target = run_dir_ + "/model.safetensors", half = target + kUnfinished;
  std::error_code fault;
  fs::remove(half, fault);
  fs::create_hard_link(source, half, fault);
  if (fault) {
    fault.clear();
    fs::copy_file(source, half, fs::copy_options::overwrite_existing, fault);
  }
  if (!fault) fs::rename(half, target, fault);
  if (!fault) return {};
  return runtime_error("run.publish", target + ": " + fault.message());
}

Result<void> verify_checkpoint(const Checkpoint& checkpoint, const CheckpointState& wanted) {
  const CheckpointState& found = checkpoint.state;
  const auto shuffle_text = [](const std::optional<std::uint64_t>& shuffle) {
    return shuffle ? std::to_string(*shuffle) : std::string("none");
  };
  std::string difference;
  if (found.model_hash != wanted.model_hash)
    difference = fmt::format("model {}, wanted {}", found.model_hash, wanted.model_hash);
  else if (found.global_batch != wanted.global_batch)
    difference = fmt::format("global batch {}, wanted {}", found.global_batch, wanted.global_batch);
  else if (found.seed != wanted.seed)
    difference = fmt::format("seed {}, wanted {}", found.seed, wanted.seed);
  else if (found.shuffle != wanted.shuffle)
    difference = fmt::format("shuffle {}, wanted {}", shuffle_text(found.shuffle),
                             shuffle_text(wanted.shuffle));
  if (difference.empty()) return {};
  return usage_error("run.checkpoint-other",
                     fmt::format("{} belongs to another job: found {}; use another --run-dir, or "
                                 "--resume never to start anew here",
                                 checkpoint.path, difference));
}

}  // namespace motley::run
