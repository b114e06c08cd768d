#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "motley/base/json.h"
#include "motley/base/result.h"
#include "motley/base/safetensors.h"

namespace motley::run {

/// Where a training stands, apart from its tensors. Independent of plan and devices.
struct CheckpointState {
  std::int64_t step = 0;  ///< steps done
  std::uint64_t seed = 0;
  std::optional<std::uint64_t> shuffle;
  std::int64_t global_batch = 0;
  std::string model_hash;
  bool operator==(const CheckpointState&) const = default;
};

/// A checkpoint on disk, checked whole: hashes of both files, formats, state.
struct Checkpoint {
  std::string path;  ///< the directory
  CheckpointState state;
  Safetensors model;      ///< state_dict names
  Safetensors optimizer;  ///< "NAME/momentum", ...
};

/// Directory of the checkpoints of a run: docs/formats/checkpoint.md.
///   checkpoint/step-00000020/{model.safetensors,optimizer.safetensors,state.json}
///   checkpoint/latest -> step-00000020
/// One writer at a time.
class CheckpointStore {
 public:
  explicit CheckpointStore(const std::string& run_dir);

  /// Writes a checkpoint and makes it the latest; keeps the one that was the latest before and
  /// removes older ones. Until the last rename the old one is the latest and whole. On a full disk:
  /// runtime error, the half-written one is removed. Returns the new directory.
  Result<std::string> write(const CheckpointState& state, std::span<const NamedTensor> model,
                            std::span<const NamedTensor> optimizer) const;

  /// The latest checkpoint; empty when there is none. When `latest` names a directory that is gone
  /// (somebody removed a bad one), the newest that is there. A damaged one is a usage error that
  /// names the file, and what to remove to go on from which step; it is never skipped silently.
  Result<std::optional<Checkpoint>> open_latest() const;

  /// Directory of the latest checkpoint or "" (not checked).
  std::string latest() const;

  /// run_dir/model.safetensors becomes the checkpoint's model (a hard link where possible).
  Result<void> publish(const std::string& checkpoint) const;

 private:
  Result<void> write_files(const std::string& folder, const CheckpointState& state,
                           std::span<const NamedTensor> model,
                           std::span<const NamedTensor> optimizer) const;
  void remove_others(const std::string& newest, const std::string& previous) const;

  std::string run_dir_, folder_;
};

/// Refuses a checkpoint that belongs to another job: other model, seed, shuffle or global batch.
Result<void> verify_checkpoint(const Checkpoint& checkpoint, const CheckpointState& wanted);

}  // namespace motley::run
