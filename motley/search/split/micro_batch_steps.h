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

struct MicroBatches {
  const graph::Graph* graph = nullptr;
  synth::LowerOptions lowering;
  std::int64_t times = 1;  ///< micro-batches of a step
};

/// Returns those of a plan with the same number everywhere.
MicroBatches micro_batches_of(const plan::Plan& plan, const graph::Graph& graph);
/// Does each micro-batch exchange its own batch norm statistics?
bool repeats_statistics(const MicroBatches& steps);

/// Returns a device's peak tensor bytes with `samples` over all micro-batches, alone or beside
/// another. A graph that cannot be lowered fits nowhere. Costs one lowering.
Bytes peak_of_tensors(const MicroBatches& steps, std::int64_t samples,
                      SplitEvaluator::Setting setting);

/// Answers batch-splitting planners for steps in several micro-batches from prices of steps at
/// once. All arguments are samples of *one micro-batch*, which a planner splits:
///  curves     passes to the end of the backward pass, then a step; gradient accumulation is left
///  out exchanges  once per step; blocking exchanges once per micro-batch if batch norm's
///  statistics are per
///             micro-batch
///  memory     of one micro-batch, plus what the whole program needs in addition
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
  double blocking_ = 1;  // exchanges of each blocking one
  mutable std::map<std::pair<DeviceId, Setting>, StepCurves> curves_;
  mutable std::map<std::pair<std::int64_t, Setting>, Bytes> more_;  // additional bytes, by samples
};

}  // namespace motley::search
