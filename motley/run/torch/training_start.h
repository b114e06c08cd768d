#pragma once

#include <string>

#include "motley/run/recovery.h"
#include "motley/run/torch/trained_tensors.h"

namespace motley::run {

/// Where a training begins: at a checkpoint, or anew.
struct TrainingStart {
  TrainingPoint point;
  std::string resumed_from;  ///< "": anew; on rank 0 alone
};
/// Loads rank 0's latest checkpoint, where there is one and the job resumes; then all ranks have
/// its tensors, or their parts of the same files, and agree on the step. Collective.
Result<TrainingStart> start_training(TrainedTensors& tensors, const CheckpointStore& checkpoints);

/// What a checkpoint says of a training that stands there.
CheckpointState checkpoint_state(const WorkerSession& session, const TrainingPoint& point);

}  // namespace motley::run
