#pragma once

#include <string>

#include "motley/run/recovery.h"
#include "motley/run/torch/trained_tensors.h"

namespace motley::run {

/// Where a training begins: at a checkpoint, or anew.
struct TrainingStart {
  TrainingPoint point;
  std::string resumed_from;  ///< "": anew; on rank 0 only
};
/// Loads rank 0's latest checkpoint if there is one and the job resumes. Then all ranks have its
/// tensors, or their parts from the same files, and agree on the step. Collective.
Result<TrainingStart> start_training(TrainedTensors& tensors, const CheckpointStore& checkpoints);

/// Returns the checkpoint state of a training at that point.
CheckpointState checkpoint_state(const WorkerSession& session, const TrainingPoint& point);

}  // namespace motley::run
