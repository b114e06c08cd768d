#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "motley/base/result.h"
#include "motley/graph/model_file.h"
#include "motley/run/checkpoints/checkpoint.h"
#include "motley/run/checkpoints/rank_files.h"
#include "motley/run/torch/handover.h"

namespace motley::run {

/// What one rank holds of a training: its model, and the tensors that outlive steps. They are whole
/// and equal on all ranks, or parts that this rank keeps.
class TrainedTensors {
 public:
  /// `session` outlives it.
  explicit TrainedTensors(const WorkerSession& session) : session_(session) {}
  /// Reads the model file, or what this rank was given of it.
  Result<void> open_model();
  /// Makes the executor, with the model's weights. `status`: of its lanes.
  Result<void> open_executor(StatusRecord& status);
  /// Takes over the tensors of another program.
  void take(Handover& handover);

  const WorkerSession& session() const { return session_; }
  const program::DeviceProgram& program() const;
  const std::shared_ptr<const graph::Model>& model() const { return model_; }
  Executor& executor() const { return *executor_; }
  const std::map<std::string, at::Tensor>& persistent() const { return persistent_; }
  const std::optional<RankWeights>& own_weights() const { return own_weights_; }
  /// Tells whether any rank has parts of tensors.
  bool some_have_parts() const { return some_have_parts_; }

  /// Loads tensors from the model file, or parts from own weights; rank 0 sends the rest.
  Result<void> load_weights(Executor& executor) const;
  /// Loads a checkpoint. Usage error `run.checkpoint-other`: of another model or optimizer.
  Result<void> load(const Checkpoint& checkpoint);
  /// Determines whether any rank has parts. Collective among several ranks.
  Result<void> share_parts();
  /// Makes whole tensors identical to rank 0's. Collective among several ranks.
  Result<void> take_from_rank_0();
  /// Writes this rank's parts of model and optimizer states; rank 0 also all that is whole.
  Result<WrittenFiles> write(const CheckpointStore& store, std::int64_t step) const;
  /// Compares whole tensors with rank 0's and makes them equal. Returns what differed, "": nothing.
  /// Runtime error `run.copies-differ`: by more than devices' kernels explain. Collective.
  Result<std::string> compare(std::int64_t step) const;

 private:
  void note_tensors();

  const WorkerSession& session_;
  std::shared_ptr<const graph::Model> model_;
  std::optional<RankWeights> own_weights_;  // in place of the model file's
  std::unique_ptr<Executor> executor_;
  std::map<std::string, at::Tensor> persistent_;  // shared with the executor
  std::map<std::string, program::Part> parts_;    // of persistent tensors that are in parts
  bool some_have_parts_ = false;
};

}  // namespace motley::run
