#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/base/result.h"
#include "motley/base/safetensors.h"
#include "motley/run/checkpoints/tensor_files.h"
#include "motley/run/checkpoints/written_files.h"
#include "motley/run/evaluation.h"

namespace motley::run {

/// The position of a training, apart from its tensors. Independent of plan and devices.
struct CheckpointState {
  std::int64_t step = 0;     ///< steps done
  std::int64_t samples = 0;  ///< samples taken by these steps
  std::uint64_t seed = 0;
  std::optional<std::uint64_t> shuffle;
  std::int64_t global_batch = 0;  ///< of the training's first step
  std::string model_hash;
  std::optional<Best> best = {};  ///< best evaluation so far
  bool operator==(const CheckpointState&) const = default;
  static void fields(auto& it, auto& field) {
    field("step", it.step)("seed", it.seed)("shuffle", it.shuffle);
    field("global_batch", it.global_batch)("data_position", it.samples);
    field("model_hash", it.model_hash).maybe("best", it.best);
  }
};

/// A checkpoint on disk whose hashes, formats and state have been checked.
struct Checkpoint {
  std::string path;  ///< the directory
  CheckpointState state;
  std::vector<Safetensors> files;  ///< own the memory that the tensors view
  TensorFiles model;               ///< by state_dict name
  TensorFiles optimizer;           ///< "NAME/momentum", ...
  WrittenFiles written;            ///< names and hashes; tensors of files held elsewhere are absent
};

/// What a rank saves: rank 0 the tensors that are whole on all ranks, and every rank its parts.
struct RankTensors {
  int rank = 0, ranks = 1;  ///< ranks that write
  std::span<const SavedTensor> model, optimizer;
};

/// The models that a training publishes at its end.
struct EndModels {
  std::string checkpoint;  ///< the latest
  bool has_best = false;   ///< the training was evaluated
  /// With averages of parameters: maps each tied name to the trained parameter's name.
  std::optional<std::map<std::string, std::string>> averages;
};

/// Manages the checkpoints of a run directory (docs/formats/checkpoint.md):
///   checkpoint/step-00000020/{model.safetensors,optimizer.safetensors,state.json}
///   checkpoint/latest -> step-00000020
///   checkpoint/best -> step-00000015, if the training is evaluated
/// One job at a time. If several ranks keep parts, each writes its own files: rank 0 calls `begin`,
/// then all call `write_part`; when all are done, rank 0 calls `finish` or `give_up`.
class CheckpointStore {
 public:
  using Extent = TensorFiles::Extent;
  explicit CheckpointStore(const std::string& run_dir);

  Result<void> begin(std::int64_t step) const;
  /// Writes a rank's files. Runtime error: no folder, as hosts do not share the run directory.
  Result<WrittenFiles> write_part(std::int64_t step, const RankTensors& tensors) const;
  /// Makes the files of all ranks the latest checkpoint, keeps the previous one, which stays latest
  /// and whole until the last rename, and removes older ones. Returns the new directory.
  Result<std::string> finish(const CheckpointState& state,
                             std::span<const WrittenFiles> ranks) const;
  /// Does the same for a folder that another store finished and whose files were brought to this
  /// store's half-written folder. Updates `best` if its state says so. Error: a hash differs.
  Result<std::string> adopt(std::int64_t step) const;
  /// Returns the folder in which a checkpoint is written until it is finished.
  std::string half_written(std::int64_t step) const;
  /// Removes the half-written checkpoint. Returns `why` extended by what is kept.
  Error give_up(std::int64_t step, Error why) const;
  /// Gives the half-written folder of a rank that keeps its files its final name; removes none.
  Result<std::string> keep_part(std::int64_t step) const;
  /// Writes a checkpoint by one rank. Full disk: runtime error; the half-written one is removed.
  Result<std::string> write(const CheckpointState& state, const RankTensors& tensors) const;

  /// Opens the latest checkpoint; none: there is none. If the target of `latest` is gone (somebody
  /// removed a bad one), opens the newest that exists. A damaged one is a usage error that names
  /// the file, what to remove and the step to resume from. It is never skipped silently.
  Result<std::optional<Checkpoint>> open_latest(Extent extent = Extent::kAll) const;

  /// Keeps a checkpoint as the best one (`best` links to it) until there is a better one.
  Result<void> keep_best(const std::string& checkpoint) const;
  /// Returns the best checkpoint's directory, or "" (unchecked). Likewise latest().
  std::string best() const;
  std::string latest() const;

  /// Publishes the whole model as run_dir/NAME (a hard link where possible).
  Result<void> publish(const std::string& checkpoint,
                       const std::string& name = "model.safetensors") const;
  /// Publishes run_dir/model_average.safetensors. `tied`: the trained parameter of each tied name.
  Result<void> publish_average(const std::string& checkpoint,
                               const std::map<std::string, std::string>& tied) const;
  /// Publishes model, model_best and model_average.safetensors.
  Result<void> publish_all(const EndModels& models) const;

 private:
  Result<std::string> put_in_place(std::int64_t step) const;
  void remove_others(const std::string& newest, const std::string& previous) const;

  std::string run_dir_, folder_;
};

/// Opens and checks a checkpoint. kAll: usage error `run.checkpoint-held` names hosts with files.
Result<Checkpoint> open_checkpoint(const std::string& folder,
                                   TensorFiles::Extent extent = TensorFiles::Extent::kAll);

/// Opens a file of a checkpoint. Usage error: its hash is not `wanted_hash`.
Result<Safetensors> open_checked(const std::string& path, const std::string& wanted_hash);

/// Returns the files that hosts keep and that are not here. Cheap.
Result<HeldFiles> held_files(const std::string& folder);
/// Tells whether the states include averages of parameters. All files must be here; checks nothing.
Result<bool> has_averages(const std::string& folder);
/// Records that all files are here, after they were brought and their hashes verified.
Result<void> settle_held(const std::string& folder);

/// Rewrites a checkpoint with whole tensors, into a missing or empty folder or a checkpoint.
Result<void> consolidate(const Checkpoint& checkpoint, const std::string& target);

/// Refuses a checkpoint of another job: other model, seed, shuffle or global batch.
Result<void> verify_checkpoint(const Checkpoint& checkpoint, const CheckpointState& wanted);

}  // namespace motley::run
