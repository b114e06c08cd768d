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

/// Who cannot be used, and how slow the others are.
struct DeviceSetting {
  std::set<std::string> gone;
  /// By what a device's times are multiplied; null: by 1.
  std::function<double(const std::string&)> slowness = nullptr;
  std::int64_t batch = 0;  ///< samples a step; 0: as many as was asked for
};

/// The best split of a batch over the inputs' devices in that setting, by the prices, in as many
/// equal micro-batches as the plan has: of one of these, as many times. Infeasible, with
/// arithmetic, where none is possible; a usage error where there are no prices, or no such
/// micro-batches.
Result<std::vector<policy::Share>> find_split(const ChosenPlan& chosen,
                                              const DeviceSetting& setting);

/// What a step by that split takes, by the step model; none: no split is possible.
std::optional<Seconds> best_step(const ChosenPlan& chosen, const DeviceSetting& setting);

/// By what the times of devices are multiplied at that time, of those that are slowed then.
using Slowness = std::map<std::string, double>;
Slowness slowness_at(const std::vector<simulate::SlowDown>& slow_downs, trace::Nanoseconds now);

/// find_split without some devices, the others so slow; none: it is not possible. `batch`: as
/// above.
Result<std::optional<std::vector<policy::Share>>> find_split_if_any(
    const ChosenPlan& chosen, const std::set<std::string>& gone, const Slowness& slowness,
    std::int64_t batch);

}  // namespace motley::control
