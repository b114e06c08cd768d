#pragma once

#include <vector>

#include "motley/base/result.h"
#include "motley/plan/planner.h"
#include "motley/search/spmd/study.h"
#include "motley/synth/ranks/exchange_methods.h"
#include "motley/synth/step/sharding.h"

namespace motley::search {

struct SpmdPlan {
  std::vector<DeviceId> devices;  ///< by rank
  synth::Sharding sharding;
  Seconds step;                 ///< of the lowered program, simulated
  std::vector<Bytes> peaks;     ///< by rank
  std::vector<double> compute;  ///< seconds by rank
  Bytes lack;                   ///< by which the worst device exceeds its memory
  bool fits() const { return lack.value == 0; }
  /// Is it better: fits where `other` does not, or is less by `by` in step or lack of memory?
  bool is_better_than(const SpmdPlan& other, double by = 0) const;
};

/// Prices a sharding by lowering and simulating it; one of identical devices with equal shares
/// represents all. Chooses the method of each exchange. A step of more than kPricedMicroBatches is
/// extrapolated from two shorter ones, as is a graph searched in fewer layers (depths.h).
Result<SpmdPlan> price_sharding(SpmdStudy& study, const std::vector<DeviceId>& devices,
                                synth::Sharding sharding);

/// Returns the fastest methods of a sharding's exchanges in the whole graph, whatever the study
/// searches: with fewer layers (depths.h) exchanges may be of other kinds. For more than
/// kPricedMicroBatches, those that the shorter steps have in common.
Result<synth::ExchangeWays> choose_ways(SpmdStudy& study, const std::vector<DeviceId>& devices,
                                        synth::Sharding sharding);

/// Changes a plan that lacks memory to gather sharded parameters again for each pass: as few as
/// needed to fit, those used first since they are held longest; otherwise all. Returns the plan
/// itself if that saves nothing.
Result<SpmdPlan> gather_again(SpmdStudy& study, SpmdPlan plan);

/// Replaces a plan's estimate by its evaluator's price.
SpmdPlan with_price(const SpmdStudy& study, SpmdPlan plan, const plan::Price& price);

}  // namespace motley::search
