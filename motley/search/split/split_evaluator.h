#pragma once

#include <cstdint>
#include <vector>

#include "motley/cost/step/step_curves.h"
#include "motley/plan/planner.h"

namespace motley::search {

using cost::Curve;
using cost::GroupExchanges;
using cost::StepCurves;

/// Prices plans and gives steps, in seconds, as functions of the samples, for planners that split
/// the batch. Implemented over cost tables and the simulator, or small tables in tests. Const and
/// deterministic.
class SplitEvaluator : public plan::Evaluator {
 public:
  /// Whether a device is in a group of more than one (shared) or alone (no exchanges, ready and
  /// update empty, end includes the update).
  enum class Setting { kAlone, kShared };
  virtual const StepCurves& curves(DeviceId device, Setting setting) const = 0;
  virtual GroupExchanges group_times(const std::vector<DeviceId>& group) const = 0;
  /// Lower bounds for any 2, 3, ..., `most` devices of a pool (device_pools.h). The default takes
  /// the pool's first ones, which is right if times depend only on route and number.
  virtual std::vector<GroupExchanges> least_times(const std::vector<DeviceId>& pool,
                                                  std::size_t most) const {
    std::vector<GroupExchanges> times;
    for (std::size_t k = 2; k <= most; ++k)
      times.push_back(group_times({pool.begin(), pool.begin() + static_cast<std::ptrdiff_t>(k)}));
    return times;
  }
  virtual Bytes peak_bytes(DeviceId device, std::int64_t samples, Setting setting) const = 0;
  /// Returns the step time of a plan that splits the batch, as `price` does, without lowering it.
  virtual Result<Seconds> step_time(const plan::Plan& plan) const = 0;
};

}  // namespace motley::search
