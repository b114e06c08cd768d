#include "motley/run/checkpoints/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <utility>
#include <vector>

#include "motley/base/file.h"
#include "motley/base/json_fields.h"
#include "motley/base/random.h"
#include "motley/base/text.h"
#include "motley/program/state_names.h"

namespace motley::run {
namespace {

namespace fs = std::filesystem;
constexpr const char* kCheckpointSchema = "motley.checkpoint/2";
constexpr const char* kPrefix = "step-";
// Never opened: a writer that dies leaves only a folder of this name behind.
constexpr const char* kUnfinished = ".tmp";

std::string step_name(std::int64_t step) { return fmt::format("{}{:08}", kPrefix, step); }

bool is_checkpoint_name(const std::string& name) {
  return name.starts_with(kPrefix) && find_integer(name.substr(std::strlen(kPrefix))).has_value();
}

bool is_there(const std::string& path) {
  std::error_code fault;
  return fs::exists(path, fault);
}

/// Flushes a file or folder. A rename is durable only once the folder of the name is flushed too.
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
  return hash_hex(file.text());
}

/// Returns the names of whole checkpoints, oldest first.
std::vector<std::string> checkpoint_names(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code fault;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, fault))
    if (is_checkpoint_name(entry.path().filename().string()))
      names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    // By number: names have eight digits until step 10^8, then more.
    return std::pair(a.size(), a) < std::pair(b.size(), b);
  });
  return names;
}

/// Makes folder/name a link to folder/target: renames a new link over it, which is atomic.
Result<void> link_to(const std::string& folder, const std::string& target,
                     const std::string& name) {
  std::error_code fault, ignored;
  const std::string link = folder + "/" + name + kUnfinished;
  fs::remove(link, ignored);
  fs::create_directory_symlink(target, link, fault);
  if (!fault) fs::rename(link, folder + "/" + name, fault);
  if (fault)
    return runtime_error("run.checkpoint-write", folder + "/" + target + ": " + fault.message());
  return sync_path(folder);
}

struct StateFile {
  CheckpointState state;
  WrittenFiles files;
  static void fields(auto& it, auto& field) {
    CheckpointState::fields(it.state, field);
    WrittenFiles::fields(it.files, field);
  }
  Result<void> check(const std::string& where) const {
    const bool is_sound = state.step >= 0 && state.global_batch > 0 &&
                          state.samples >= state.step;  // each step takes at least one
    if (!is_sound) return usage_error("run.checkpoint", where + ": a value is out of range");
    return files.check(where);
  }
};

Result<StateFile> read_state(const std::string& folder) {
  const std::string path = folder + "/state.json";
  MOTLEY_ASSIGN(const std::string text, read_file(path));
  MOTLEY_ASSIGN(const Json json, parse_json(text, path));
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, path));
  MOTLEY_ASSIGN(const std::string schema, object.string("schema"));
  if (schema != kCheckpointSchema)
    return usage_error("run.checkpoint", fmt::format("{}: found schema '{}', wanted '{}'", path,
                                                     schema, kCheckpointSchema));
  MOTLEY_ASSIGN(StateFile file, fields_of<StateFile>(object));
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  return file;
}

Result<void> check_hash(const std::string& path, const std::string& wanted) {
  MOTLEY_ASSIGN(const std::string hash, hash_file(path));
  if (hash == wanted) return {};
  return usage_error("run.checkpoint", fmt::format("{}: found hash {}, wanted {} (state.json): the "
                                                   "file was damaged or changed",
                                                   path, hash, wanted));
}

/// Checks the hashes of files that came from elsewhere and flushes them to disk.
Result<void> settle_files(const std::string& folder, const WrittenFiles& files) {
  for (const auto* hashes : {&files.model, &files.optimizer})
    for (const auto& [name, hash] : *hashes) {
      if (files.held.contains(name)) continue;
      MOTLEY_RETURN_IF_ERROR(check_hash(folder + "/" + name, hash));
      MOTLEY_RETURN_IF_ERROR(sync_path(folder + "/" + name));
    }
  return {};
}

Result<WrittenFiles> hash_written(const std::string& folder, const std::string& model,
                                  const std::string& optimizer) {
  WrittenFiles files;
  MOTLEY_ASSIGN(files.model[model], hash_file(folder + "/" + model));
  MOTLEY_ASSIGN(files.optimizer[optimizer], hash_file(folder + "/" + optimizer));
  return files;
}

/// Opens the files of a model or of an optimizer's states; appends them to `kept`.
Result<TensorFiles> open_files(const std::string& folder,
                               const std::map<std::string, std::string>& hashes,
                               TensorFiles::Extent extent, std::vector<Safetensors>& kept) {
  std::vector<Safetensors> opened;
  for (const auto& [name, hash] : hashes) {
    MOTLEY_ASSIGN(Safetensors file, open_checked(folder + "/" + name, hash));
    opened.push_back(std::move(file));
  }
  std::vector<TensorFile> files;
  auto file = opened.begin();
  for (const auto& [name, hash] : hashes) files.push_back({folder + "/" + name, &*file++});
  MOTLEY_ASSIGN(TensorFiles tensors, TensorFiles::make(files, extent));
  std::move(opened.begin(), opened.end(), std::back_inserter(kept));
  return tensors;
}

/// Returns "model.safetensors", or "model-00002-of-00003.safetensors" for rank 1 of three.
std::string file_name(const char* what, const RankTensors& tensors) {
  if (tensors.ranks == 1) return fmt::format("{}.safetensors", what);
  return fmt::format("{}-{:05}-of-{:05}.safetensors", what, tensors.rank + 1, tensors.ranks);
}

Result<void> make_folder(const std::string& folder) {
  std::error_code fault;
  fs::remove_all(folder, fault);
  fs::create_directories(folder, fault);
  if (fault) return runtime_error("run.checkpoint-write", folder + ": " + fault.message());
  return {};
}

Result<void> write_state(const std::string& folder, const CheckpointState& state,
                         const WrittenFiles& files) {
  Json json{{"schema", kCheckpointSchema}};
  json.update(fields_to_json(StateFile{state, files}));
  MOTLEY_RETURN_IF_ERROR(write_file_atomic(folder + "/state.json", json.dump(2) + "\n"));
  return sync_path(folder);
}

Result<void> replace(const std::string& half, const std::string& target) {
  std::error_code fault;
  // A folder cannot be renamed over one that is not empty.
  fs::remove_all(target, fault);  // left by an earlier run with --resume never
  fs::rename(half, target, fault);
  if (fault) return runtime_error("run.checkpoint-write", target + ": " + fault.message());
  return {};
}

/// Returns "host b has model-00002-of-00003.safetensors; ..."
std::string describe_held(const HeldFiles& held) {
  std::vector<std::string> hosts;
  for (const auto& [host, names] : names_by_host(held))
    hosts.push_back(fmt::format("host {} has {}", host, fmt::join(names, ", ")));
  return join(hosts, "; ");
}

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

Result<Safetensors> open_checked(const std::string& path, const std::string& wanted_hash) {
  // Checked first: half-written or corrupt weights would train on unnoticed.
  MOTLEY_RETURN_IF_ERROR(check_hash(path, wanted_hash));
  return Safetensors::open(path);
}

Result<HeldFiles> held_files(const std::string& folder) {
  MOTLEY_ASSIGN(const StateFile file, read_state(folder));
  return file.files.held;
}

Result<bool> has_averages(const std::string& folder) {
  MOTLEY_ASSIGN(const StateFile file, read_state(folder));
  for (const auto& [name, hash] : file.files.optimizer) {
    MOTLEY_ASSIGN(const Safetensors states, Safetensors::open(folder + "/" + name));
    for (const auto& [state, tensor] : states.tensors())
      if (state.ends_with(program::kAverageSuffix)) return true;
  }
  return false;
}

Result<void> settle_held(const std::string& folder) {
  MOTLEY_ASSIGN(StateFile file, read_state(folder));
  file.files.held.clear();
  MOTLEY_RETURN_IF_ERROR(settle_files(folder, file.files));
  return write_state(folder, file.state, file.files);
}

Result<Checkpoint> open_checkpoint(const std::string& folder, TensorFiles::Extent extent) {
  MOTLEY_ASSIGN(const StateFile file, read_state(folder));
  Checkpoint checkpoint{.path = folder, .state = file.state, .written = file.files};
  if (checkpoint.written.held.empty()) extent = TensorFiles::Extent::kAll;
  if (extent == TensorFiles::Extent::kAll && !checkpoint.written.held.empty())
    return usage_error("run.checkpoint-held",
                       fmt::format("{}: not all of it is here: {}; `motley consolidate {} --hosts` "
                                   "brings it",
                                   folder, describe_held(checkpoint.written.held), folder));
  WrittenFiles here = file.files;
  for (const auto& [name, held] : checkpoint.written.held) {
    here.model.erase(name);
    here.optimizer.erase(name);
  }
  MOTLEY_ASSIGN(checkpoint.model, open_files(folder, here.model, extent, checkpoint.files));
  MOTLEY_ASSIGN(checkpoint.optimizer, open_files(folder, here.optimizer, extent, checkpoint.files));
  return checkpoint;
}

CheckpointStore::CheckpointStore(const std::string& run_dir)
    : run_dir_(run_dir), folder_(run_dir + "/checkpoint") {}

std::string CheckpointStore::half_written(std::int64_t step) const {
  return folder_ + "/" + step_name(step) + kUnfinished;
}

Result<void> CheckpointStore::begin(std::int64_t step) const {
  return make_folder(half_written(step));
}

Result<WrittenFiles> CheckpointStore::write_part(std::int64_t step,
                                                 const RankTensors& tensors) const {
  const std::string folder = half_written(step);
  if (!is_there(folder))
    return runtime_error("run.checkpoint-write",
                         fmt::format("{}: not there for rank {}; all ranks must see one run "
                                     "directory where they keep parts of the parameters: put it "
                                     "on a file system that their hosts share",
                                     folder, tensors.rank));
  const std::string model = file_name("model", tensors);
  const std::string optimizer = file_name("optimizer", tensors);
  MOTLEY_RETURN_IF_ERROR(write_tensor_file(folder + "/" + model, tensors.model));
  MOTLEY_RETURN_IF_ERROR(write_tensor_file(folder + "/" + optimizer, tensors.optimizer));
  return hash_written(folder, model, optimizer);
}

Result<std::string> CheckpointStore::finish(const CheckpointState& state,
                                            std::span<const WrittenFiles> ranks) const {
  const std::string half = half_written(state.step);
  WrittenFiles all;
  for (const WrittenFiles& files : ranks) {
    for (const auto& [name, hash] : files.model) all.model[name] = hash;
    for (const auto& [name, hash] : files.optimizer) all.optimizer[name] = hash;
    all.held.insert(files.held.begin(), files.held.end());
  }
  for (const auto* files : {&all.model, &all.optimizer})
    for (const auto& [name, hash] : *files)
      if (!all.held.contains(name) && !is_there(half + "/" + name))
        // Without a shared file system each rank wrote to its own disk: files are missing here.
        return runtime_error("run.checkpoint-write",
                             fmt::format("{}/{}: not there for rank 0, though another rank wrote "
                                         "it; all ranks must see one run directory: put it on a "
                                         "file system that their hosts share",
                                         half, name));
  // state.json comes last and completes the folder. Then the folder gets its name, then `latest`
  // moves: at every moment `latest` names a whole checkpoint, the new one or the one before.
  MOTLEY_RETURN_IF_ERROR(write_state(half, state, all));
  return put_in_place(state.step);
}

Result<std::string> CheckpointStore::put_in_place(std::int64_t step) const {
  const std::string name = step_name(step);
  const std::string final_path = folder_ + "/" + name, previous = latest();
  MOTLEY_RETURN_IF_ERROR(replace(half_written(step), final_path));
  MOTLEY_RETURN_IF_ERROR(link_to(folder_, name, "latest"));
  remove_others(final_path, previous);
  return final_path;
}

Result<std::string> CheckpointStore::adopt(std::int64_t step) const {
  const std::string half = half_written(step);
  MOTLEY_ASSIGN(const StateFile file, read_state(half));
  MOTLEY_RETURN_IF_ERROR(settle_files(half, file.files));
  MOTLEY_RETURN_IF_ERROR(sync_path(half + "/state.json"));
  MOTLEY_RETURN_IF_ERROR(sync_path(half));
  MOTLEY_ASSIGN(const std::string path, put_in_place(step));
  const bool is_best = file.state.best && file.state.best->step == step;
  if (is_best) MOTLEY_RETURN_IF_ERROR(keep_best(path));
  return path;
}

Error CheckpointStore::give_up(std::int64_t step, Error why) const {
  std::error_code ignored;
  fs::remove_all(half_written(step), ignored);
  const std::string previous = latest();
  const std::string kept =
      previous.empty() ? "there is no earlier one" : fmt::format("{} is kept", previous);
  why.kind = ErrorKind::kRuntime;
  why.code = "run.checkpoint-write";
  if (why.message.find(std::strerror(ENOSPC)) != std::string::npos)
    why.message += "; make room there and run again";
  why.message = fmt::format("checkpoint of step {} not written ({}): {}", step, kept, why.message);
  return why;
}

Result<std::string> CheckpointStore::keep_part(std::int64_t step) const {
  const std::string path = folder_ + "/" + step_name(step);
  MOTLEY_RETURN_IF_ERROR(replace(half_written(step), path));
  MOTLEY_RETURN_IF_ERROR(sync_path(folder_));
  return path;
}

Result<std::string> CheckpointStore::write(const CheckpointState& state,
                                           const RankTensors& tensors) const {
  const auto written = [&]() -> Result<std::string> {
    MOTLEY_RETURN_IF_ERROR(begin(state.step));
    MOTLEY_ASSIGN(const WrittenFiles files, write_part(state.step, tensors));
    return finish(state, {&files, 1});
  }();
  if (written) return written;
  return tl::make_unexpected(give_up(state.step, written.error()));
}

void CheckpointStore::remove_others(const std::string& newest, const std::string& previous) const {
  std::error_code fault;
  std::vector<fs::path> old;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, fault)) {
    const std::string name = entry.path().filename().string();
    // Keeps two: if the newest is damaged, a person can resume from the other.
    const bool kept = entry.path() == newest || entry.path() == previous || entry.path() == best();
    const bool half = name.starts_with(kPrefix) && name.ends_with(kUnfinished);
    if (!kept && (half || is_checkpoint_name(name))) old.push_back(entry.path());
  }
  for (const fs::path& path : old) fs::remove_all(path, fault);
}

std::string CheckpointStore::best() const {
  std::error_code fault;
  const fs::path target = fs::read_symlink(folder_ + "/best", fault);
  return fault || !fs::is_directory(folder_ / target, fault) ? "" : (folder_ / target).string();
}

Result<void> CheckpointStore::keep_best(const std::string& checkpoint) const {
  return link_to(folder_, fs::path(checkpoint).filename(), "best");
}

std::string CheckpointStore::latest() const {
  std::error_code fault;
  const fs::path target = fs::read_symlink(folder_ + "/latest", fault);
  if (!fault && fs::is_directory(folder_ / target, fault)) return (folder_ / target).string();
  // Some file systems and copies drop symbolic links; the names also tell which is the newest.
  const std::vector<std::string> names = checkpoint_names(folder_);
  return names.empty() ? "" : folder_ + "/" + names.back();
}

Result<std::optional<Checkpoint>> CheckpointStore::open_latest(Extent extent) const {
  const std::string path = latest();
  if (path.empty()) return std::nullopt;
  auto checkpoint = open_checkpoint(path, extent);
  if (checkpoint) return std::optional<Checkpoint>(std::move(*checkpoint));
  Error error = std::move(checkpoint).error();
  if (error.code == "run.checkpoint-held") return tl::make_unexpected(std::move(error));
  error.kind = ErrorKind::kUsage;
  error.code = "run.checkpoint";
  error.message += way_out(checkpoint_names(folder_), fs::path(path).filename(), folder_);
  return tl::make_unexpected(std::move(error));
}

Result<void> CheckpointStore::publish(const std::string& checkpoint,
                                      const std::string& name) const {
  const std::string source = checkpoint + "/model.safetensors";
  const std::string target = run_dir_ + "/" + name, half = target + kUnfinished;
  if (!is_there(source)) {
    MOTLEY_ASSIGN(const Checkpoint parts, open_checkpoint(checkpoint));
    return parts.model.write_whole(target);
  }
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

Result<void> CheckpointStore::publish_average(
    const std::string& checkpoint, const std::map<std::string, std::string>& tied) const {
  MOTLEY_ASSIGN(const Checkpoint found, open_checkpoint(checkpoint));
  return found.model.with_others(found.optimizer, std::string(program::kAverageSuffix), tied)
      .write_whole(run_dir_ + "/model_average.safetensors");
}

Result<void> CheckpointStore::publish_all(const EndModels& models) const {
  MOTLEY_RETURN_IF_ERROR(publish(models.checkpoint));
  if (const std::string kept = best(); models.has_best && !kept.empty())
    MOTLEY_RETURN_IF_ERROR(publish(kept, "model_best.safetensors"));
  return models.averages ? publish_average(models.checkpoint, *models.averages) : Result<void>();
}

Result<void> consolidate(const Checkpoint& checkpoint, const std::string& target) {
  std::error_code fault;
  const bool is_empty = fs::is_directory(target, fault) && fs::is_empty(target, fault);
  if (is_there(target) && !is_there(target + "/state.json") && !is_empty)
    return usage_error("run.consolidate",
                       target + ": is there and is no checkpoint; name another folder");
  const std::string half = target + kUnfinished;
  MOTLEY_RETURN_IF_ERROR(make_folder(half));
  const std::string model = "model.safetensors", optimizer = "optimizer.safetensors";
  MOTLEY_RETURN_IF_ERROR(checkpoint.model.write_whole(half + "/" + model));
  MOTLEY_RETURN_IF_ERROR(checkpoint.optimizer.write_whole(half + "/" + optimizer));
  MOTLEY_ASSIGN(const WrittenFiles files, hash_written(half, model, optimizer));
  MOTLEY_RETURN_IF_ERROR(write_state(half, checkpoint.state, files));
  return replace(half, target);
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
