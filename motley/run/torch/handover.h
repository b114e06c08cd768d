#pragma once

#include <memory>
#include <vector>

#include "motley/base/result.h"
#include "motley/graph/model_file.h"
#include "motley/run/hosts/status.h"
#include "motley/run/recovery.h"
#include "motley/run/torch/lanes/executor.h"
#include "motley/run/torch/worker_session.h"

namespace motley::run {

/// What a rank takes over from one program to the next.
struct Handover {
  std::shared_ptr<const graph::Model> model;
  std::shared_ptr<StatusFile> status;
  std::unique_ptr<Executor> executor;  ///< of the session's program, with the current tensors
  std::vector<std::unique_ptr<Executor>> evaluators;  ///< by program of the session
  double lr_factor = 1;                               ///< of all learning rates
  bool some_have_parts = false;                       ///< some rank has parts of tensors
  bool stops = false;                                 ///< only a checkpoint is still to be written
  bool after_loss = false;  ///< work due after the last step may be missing
  TrainingPoint point;
};

/// Returns the options for the session's device; `moves`: for a program that only moves tensors.
ExecutorOptions executor_options(const WorkerSession& session, bool moves = false);
/// Whether master copies start as the parameters or are moved.
enum class Masters { kBegin, kMoved };
/// Loads a program's persistent tensors from the job's model file, except shared ones.
Result<void> load_model(const Job& job, const graph::Model& model, Masters masters,
                        Executor& executor);

}  // namespace motley::run
