#pragma once

#include <string>

#include "motley/run/torch/trained_tensors.h"

namespace motley::run {

/// A training's checkpoints, which its ranks write together: rank 0 what is whole, each its own
/// parts. Those of ranks on other machines are sent to rank 0, or kept by their hosts (Job::kept).
class JointCheckpoints {
 public:
  /// `tensors` outlives it.
  explicit JointCheckpoints(const TrainedTensors& tensors);
  /// Rank 0's.
  const CheckpointStore& store() const { return store_; }
  /// Writes one of these steps. Its folder, on rank 0; else "". Collective.
  Result<std::string> write(const CheckpointState& state);
  /// The models that the training ends with, of its latest checkpoint, where rank 0's host is to
  /// have them. `has_best`: was it evaluated? By rank 0.
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
  CheckpointState state_;  // of the one that is written
};

}  // namespace motley::run
