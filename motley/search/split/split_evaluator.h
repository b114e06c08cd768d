#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "motley/plan/planner.h"

namespace motley::search {

/// A nondecreasing piecewise-linear function of the local batch: points (samples, seconds) with
/// samples strictly increasing. Below the first point it is constant; beyond the last it goes on
/// with the last segment's slope.
struct Curve {
  std::vector<std::pair<double, double>> points;
  bool operator==(const Curve&) const = default;
  double at(double samples) const;
};

/// Time of one step on one device as a function of its samples, computing undisturbed at its own
/// speed, from the start of the step:
///   ready[k]   exchange k (in order of exchange) may start
///   end        forward, backward and packing are done
///   update[k]  seconds of the optimizer update that follows exchange k (does not depend on
///              samples)
/// Seconds of exchanges in the middle of forward and backward that hold up everybody are not part
/// of these; see GroupExchanges.
struct StepCurves {
  std::vector<Curve> ready;
  Curve end;
  std::vector<double> update;
  bool operator==(const StepCurves&) const = default;
};

/// What a group of devices spends on communication in a step.
struct GroupExchanges {
  std::vector<double> exchange;  ///< seconds of exchange k
  double blocking = 0.0;  ///< seconds of exchanges that all devices wait for (batch norm, ...)
};

/// What planners that split the batch ask beside the price of a plan: a step as a function of the
/// samples. Implemented over cost tables and the simulator; tests use small tables. All times in
/// seconds. Const and deterministic.
class SplitEvaluator : public plan::Evaluator {
 public:
  /// Curves of a device in a group of more than one (shared) or alone (not shared: no exchanges,
  /// ready and update empty, end includes the update).
  enum class Setting { kAlone, kShared };
  virtual const StepCurves& curves(DeviceId device, Setting setting) const = 0;
  virtual GroupExchanges group_times(const std::vector<DeviceId>& group) const = 0;
  /// What any 2, 3, ..., `most` devices of a pool (device_pools.h) spend at least. Here: what its
  /// first ones do, as where times depend on route and number alone.
  virtual std::vector<GroupExchanges> least_times(const std::vector<DeviceId>& pool,
                                                  std::size_t most) const {
    std::vector<GroupExchanges> times;
    for (std::size_t k = 2; k <= most; ++k)
      times.push_back(group_times({pool.begin(), pool.begin() + static_cast<std::ptrdiff_t>(k)}));
    return times;
  }
  /// Peak memory of a device with `samples` samples.
  virtual Bytes peak_bytes(DeviceId device, std::int64_t samples, Setting setting) const = 0;
  /// Step time of a plan that splits the batch, as `price` says, without making its program.
  virtual Result<Seconds> step_time(const plan::Plan& plan) const = 0;
};

}  // namespace motley::search
