#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "motley/control/planning/chosen_plan.h"
#include "motley/policy/action.h"
#include "motley/simulate/conditions.h"
#include "motley/trace/trace.h"

namespace motley::control {

struct DeviceSetting {
  std::set<std::string> gone;
  /// The factor on a device's times; null: 1.
  std::function<double(const std::string&)> slowness = nullptr;
  std::int64_t batch = 0;  ///< samples per step; 0: as the question asks
};

/// Finds the best split in that setting, in the plan's number of equal micro-batches. Infeasible,
/// with arithmetic: there is none. Usage error: no prices, or an indivisible batch.
Result<std::vector<policy::Share>> find_split(const ChosenPlan& chosen,
                                              const DeviceSetting& setting);

/// Returns the step time of that split by the step model; none: no split is possible.
std::optional<Seconds> best_step(const ChosenPlan& chosen, const DeviceSetting& setting);

/// Factors on the times of the devices that are slowed at a time.
using Slowness = std::map<std::string, double>;
Slowness slowness_at(const std::vector<simulate::SlowDown>& slow_downs, trace::Nanoseconds now);

/// Returns find_split without the devices `gone`; none: no split is possible.
Result<std::optional<std::vector<policy::Share>>> find_split_if_any(
    const ChosenPlan& chosen, const std::set<std::string>& gone, const Slowness& slowness,
    std::int64_t batch);

}  // namespace motley::control
