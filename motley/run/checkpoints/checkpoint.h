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

/// Where a training stands, apart from its tensors. Independent of plan and devices.
struct CheckpointState {
  std::int64_t step = 0;     ///< steps done
  std::int64_t samples = 0;  ///< taken by them, of the order of all samples
  std::uint64_t seed = 0;
  std::optional<std::uint64_t> shuffle;
  std::int64_t global_batch = 0;  ///< that the training began with
  std::string model_hash;
  std::optional<Best> best = {};  ///< evaluation so far
  bool operator==(const CheckpointState&) const = default;
  static void fields(auto& it, auto& field) {
    field("step", it.step)("seed", it.seed)("shuffle", it.shuffle);
    field("global_batch", it.global_batch)("data_position", it.samples);
    field("model_hash", it.model_hash).maybe("best", it.best);
  }
};

/// A checkpoint on disk, checked whole: hashes of all files, formats, state.
struct Checkpoint {
  std::string path;  ///< the directory
  CheckpointState state;
  std::vector<Safetensors> files;  ///< whose memory the tensors are views of
  TensorFiles model;               ///< state_dict names
  TensorFiles optimizer;           ///< "NAME/momentum", ...
  WrittenFiles written;  ///< names and hashes; tensors of those held elsewhere are left out
};

/// What a rank keeps: rank 0 the tensors that are whole on all, and each its parts.
struct RankTensors {
  int rank = 0, ranks = 1;  ///< of those that write
  std::span<const SavedTensor> model, optimizer;
};

/// The models that a training ends with.
struct EndModels {
  std::string checkpoint;  ///< the latest
  bool has_best = false;   ///< was it evaluated?
  /// Where it has averages of its parameters: the trained parameter's name by each further name.
  std::optional<std::map<std::string, std::string>> averages;
};

/// Directory of the checkpoints of a run: docs/formats/checkpoint.md.
///   checkpoint/step-00000020/{model.safetensors,optimizer.safetensors,state.json}
///   checkpoint/latest -> step-00000020
///   checkpoint/best -> step-00000015, where the training is evaluated
/// One job at a time. Where several ranks keep parts, each writes files of its own: rank 0 calls
/// `begin`, then all `write_part`, then rank 0, when all have, `finish`, or `give_up`.
class CheckpointStore {
 public:
  using Extent = TensorFiles::Extent;
  explicit CheckpointStore(const std::string& run_dir);

  /// Makes the folder that is written into.
  Result<void> begin(std::int64_t step) const;
  /// Writes a rank's files. A runtime error if the folder is not there: ranks on different hosts
  /// must share the run directory's file system.
  Result<WrittenFiles> write_part(std::int64_t step, const RankTensors& tensors) const;
  /// Makes it the latest checkpoint, of the files of all ranks; keeps the one that was the latest
  /// before and removes older ones. Until the last rename the old one is the latest and whole.
  /// Returns the new directory.
  Result<std::string> finish(const CheckpointState& state,
                             std::span<const WrittenFiles> ranks) const;
  /// As `finish`, of a folder that another store finished and whose files were brought to where
  /// this one has half-written ones. Also the best one, where its state says so. Error: a file is
  /// not as its hash says.
  Result<std::string> adopt(std::int64_t step) const;
  /// Where a checkpoint is written until it is finished.
  std::string half_written(std::int64_t step) const;
  /// Removes what was written of a checkpoint; the error with what is kept.
  Error give_up(std::int64_t step, Error why) const;
  /// Makes a half-written folder, of a rank that keeps its files itself, one of this name; removes
  /// none.
  Result<std::string> keep_part(std::int64_t step) const;
  /// All of it by one rank. On a full disk: runtime error, the half-written one is removed.
  Result<std::string> write(const CheckpointState& state, const RankTensors& tensors) const;

  /// The latest checkpoint; empty when there is none. When `latest` names a directory that is gone
  /// (somebody removed a bad one), the newest that is there. A damaged one is a usage error that
  /// names the file, and what to remove to go on from which step; it is never skipped silently.
  Result<std::optional<Checkpoint>> open_latest(Extent extent = Extent::kAll) const;

  /// Keeps a checkpoint, as the best one (`best` links to it), until there is a better one.
  Result<void> keep_best(const std::string& checkpoint) const;
  /// Directory of the best checkpoint or "" (not checked).
  std::string best() const;
  /// Directory of the latest checkpoint or "" (not checked).
  std::string latest() const;

  /// run_dir/NAME becomes the checkpoint's whole model (a hard link where possible).
  Result<void> publish(const std::string& checkpoint,
                       const std::string& name = "model.safetensors") const;
  /// run_dir/model_average.safetensors becomes the same with the averages of its parameters;
  /// `tied`: the trained parameter's name by each of its further names.
  Result<void> publish_average(const std::string& checkpoint,
                               const std::map<std::string, std::string>& tied) const;
  /// All of them: model, model_best, model_average.safetensors.
  Result<void> publish_all(const EndModels& models) const;

 private:
  Result<std::string> put_in_place(std::int64_t step) const;
  void remove_others(const std::string& newest, const std::string& previous) const;

  std::string run_dir_, folder_;
};

/// Opens the checkpoint in a folder and checks it. `extent`: must all of it be here? Usage error
/// `run.checkpoint-held`: it is not, with the hosts that have the rest.
Result<Checkpoint> open_checkpoint(const std::string& folder,
                                   TensorFiles::Extent extent = TensorFiles::Extent::kAll);

/// Opens a file of a checkpoint whose hash is as wanted; usage error: it is not.
Result<Safetensors> open_checked(const std::string& path, const std::string& wanted_hash);

/// Files of the checkpoint in a folder that hosts keep and that are not here. Cheap.
Result<HeldFiles> held_files(const std::string& folder);
/// Are there averages of parameters among the states of the checkpoint in a folder, whose files are
/// all here? Cheap: nothing is checked.
Result<bool> has_averages(const std::string& folder);
/// Says in the folder's state that all its files are here, when they were brought and their hashes
/// are right.
Result<void> settle_held(const std::string& folder);

/// Writes a checkpoint anew with whole tensors, as one rank would: `target` (a folder that is a
/// checkpoint already, the same one maybe, empty or not there) becomes a checkpoint.
Result<void> consolidate(const Checkpoint& checkpoint, const std::string& target);

/// Refuses a checkpoint that belongs to another job: other model, seed, shuffle or global batch.
Result<void> verify_checkpoint(const Checkpoint& checkpoint, const CheckpointState& wanted);

}  // namespace motley::run
