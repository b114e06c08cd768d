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

/// What a rank goes on with by another program.
struct Handover {
  std::shared_ptr<const graph::Model> model;
  std::shared_ptr<StatusFile> status;
  std::unique_ptr<Executor> executor;  ///< of the session's program, with the tensors as they are
  std::vector<std::unique_ptr<Executor>> evaluators;  ///< by program of the session's
  double lr_factor = 1;                               ///< of all learning rates
  bool some_have_parts = false;                       ///< has any rank parts of tensors?
  bool stops = false;                                 ///< all that it does is a checkpoint
  bool after_loss = false;  ///< what was due after the last step may not have been done
  TrainingPoint point;
};

/// How a session's device runs programs, those that do nothing but move tensors, too.
ExecutorOptions executor_options(const WorkerSession& session, bool moves = false);
/// Master copies of parameters: they begin as these, or are moved.
enum class Masters { kBegin, kMoved };
/// Sets what a program keeps as the job's model file has it, but for what is shared.
Result<void> load_model(const Job& job, const graph::Model& model, Masters masters,
                        Executor& executor);

}  // namespace motley::run
