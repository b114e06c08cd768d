#pragma once

#include <vector>

#include "motley/base/result.h"
#include "motley/plan/planner.h"
#include "motley/search/spmd/study.h"
#include "motley/synth/ranks/exchange_methods.h"
#include "motley/synth/step/sharding.h"

namespace motley::search {

/// A plan that was priced.
struct SpmdPlan {
  std::vector<DeviceId> devices;  ///< by rank
  synth::Sharding sharding;
  Seconds step;                 ///< of the lowered program, simulated
  std::vector<Bytes> peaks;     ///< by rank
  std::vector<double> compute;  ///< seconds by rank
  Bytes lack;                   ///< by which the worst device is over its memory
  bool fits() const { return lack.value == 0; }
  /// Does it fit where the other does not, or win by a share of its step, or of what it lacks?
  bool is_better_than(const SpmdPlan& other, double by = 0) const;
};

/// Prices a sharding by lowering and simulating it: of devices that are identical and have equal
/// shares one stands for all. Chooses how each exchange is carried out. A step in more than
/// kPricedMicroBatches is an estimate: two shorter ones and the line through them. So is one of a
/// graph that is searched in fewer layers (depths.h).
Result<SpmdPlan> price_sharding(SpmdStudy& study, const std::vector<DeviceId>& devices,
                                synth::Sharding sharding);

/// How the exchanges of a sharding of all of the graph are carried out the fastest, whatever the
/// study searches: in fewer layers (depths.h) they may be of other kinds. Of more than
/// kPricedMicroBatches those that the shorter steps have in common.
Result<synth::ExchangeWays> choose_ways(SpmdStudy& study, const std::vector<DeviceId>& devices,
                                        synth::Sharding sharding);

/// A plan that lacks memory with its parameters in parts gathered again for each pass, if it
/// gathers any: with as many as it needs to fit, those that are used first, as they are held
/// longest; else with all. Itself where that saves nothing.
Result<SpmdPlan> gather_again(SpmdStudy& study, SpmdPlan plan);

/// The plan with what its evaluator says, in place of an estimate.
SpmdPlan with_price(const SpmdStudy& study, SpmdPlan plan, const plan::Price& price);

}  // namespace motley::search
