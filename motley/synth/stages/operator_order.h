#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "motley/plan/plan.h"
#include "motley/synth/stages/stage_needs.h"

namespace motley::synth {

/// The order of all operators of a step in stages (StagedStep).
struct OperatorOrder {
  std::vector<StagedOp> operators;  ///< by position
  std::vector<std::int64_t> tasks;  ///< by position
  std::vector<double> times;        ///< by position: when it ends (StagedStep::times)
  std::vector<double> lags;         ///< by stage: of TaskPlace, in the unit of the times
  std::int64_t count = 0;           ///< of tasks

  /// Is it the task of a micro-batch, neither the first nor the last one?
  bool is_between(std::int64_t task) const { return task > 0 && task + 1 < count; }
};

/// Groups the operators between two values of other stages into tasks, and orders these
/// (plan::order_tasks). Backward operators on forward values alone wait for their first reader;
/// weight gradients come late in regions with late_weights. O(graph) beside order_tasks.
OperatorOrder find_operator_order(const StageNeeds& needs, const plan::Plan& plan);

}  // namespace motley::synth
