#pragma once

#include <string>

#include "motley/run/torch/trained_tensors.h"

namespace motley::run {

/// Writes a training's checkpoints by all ranks together: rank 0 what is whole, each its parts.
/// Ranks on other machines send theirs to rank 0, or their hosts keep them (Job::kept).
class JointCheckpoints {
 public:
  /// `tensors` outlives it.
  explicit JointCheckpoints(const TrainedTensors& tensors);
  /// Returns rank 0's store.
  const CheckpointStore& store() const { return store_; }
  /// Writes a checkpoint. Returns its folder on rank 0, else "". Collective.
  Result<std::string> write(const CheckpointState& state);
  /// Publishes the final models from the latest checkpoint, if rank 0's host is to have them.
  /// `has_best`: the training was evaluated. Called by rank 0.
  Result<void> publish(const std::string& checkpoint, bool has_best) const;

 private:
  CheckpointStore own_store() const;
  bool keeps_own() const;
  Result<void> keep_files(WrittenFiles& files) const;
  std::string name_of(int rank) const;
  Result<void> receive_files(const WrittenFiles& files, int rank) const;
  Result<void> send_files(const WrittenFiles& files) const;
  Result<std::string> write_checkpoint() const;
  Result<std::string> finish_checkpoint() const;
  Result<std::string> lead() const;
  Result<std::string> join() const;

  const TrainedTensors& tensors_;
  const WorkerSession& session_;
  CheckpointStore store_;
  CheckpointState state_;  // of the checkpoint being written
};

}  // namespace motley::run
