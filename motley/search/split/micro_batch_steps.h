#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "motley/graph/graph.h"
#include "motley/plan/plan.h"
#include "motley/search/split/split_evaluator.h"
#include "motley/synth/lower.h"

namespace motley::search {

/// Steps in equal micro-batches.
struct MicroBatches {
  const graph::Graph* graph = nullptr;
  synth::LowerOptions lowering;
  std::int64_t times = 1;  ///< micro-batches of a step
};

/// Those of a plan that has as many everywhere.
MicroBatches micro_batches_of(const plan::Plan& plan, const graph::Graph& graph);
/// Are batch norm's statistics those of each of them?
bool repeats_statistics(const MicroBatches& steps);

/// Tensors of a device at their peak, with `samples` in all of its micro-batches, alone or beside
/// another one. What cannot be lowered fits nowhere. One lowering.
Bytes peak_of_tensors(const MicroBatches& steps, std::int64_t samples,
                      SplitEvaluator::Setting setting);

/// What planners that split the batch ask, answered for steps in several micro-batches by the
/// prices of steps at once; all is by the samples of *one micro-batch*, as a planner splits that:
///   curves     what adds gradients up is left out: passes to the end of the backward pass, and a
///              step behind them
///   exchanges  once a step; where batch norm's statistics are of each micro-batch, what holds up
///              everybody each time
///   memory     of one micro-batch, and what programs of all of them have more
/// Prices of whole plans are those of `once`.
class MicroBatchSteps : public SplitEvaluator {
 public:
  /// `once` and the graph must outlive it.
  MicroBatchSteps(const SplitEvaluator& once, MicroBatches steps);

  const StepCurves& curves(DeviceId device, Setting setting) const override;
  GroupExchanges group_times(const std::vector<DeviceId>& group) const override;
  std::vector<GroupExchanges> least_times(const std::vector<DeviceId>& pool,
                                          std::size_t most) const override;
  Bytes peak_bytes(DeviceId device, std::int64_t samples, Setting setting) const override;
  Result<Seconds> step_time(const plan::Plan& plan) const override { return once_.step_time(plan); }
  Result<plan::Price> price(const plan::Plan& plan) const override { return once_.price(plan); }

 private:
  const SplitEvaluator& once_;
  const MicroBatches steps_;
  double blocking_ = 1;  // how often what holds up everybody is exchanged
  mutable std::map<std::pair<DeviceId, Setting>, StepCurves> curves_;
  mutable std::map<std::pair<std::int64_t, Setting>, Bytes> more_;  // of programs, by samples
};

}  // namespace motley::search
