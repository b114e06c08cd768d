#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "motley/control/chosen_plan.h"
#include "motley/policy/action.h"

namespace motley::control {

/// Who cannot be used, and how slow the others are.
struct DeviceSetting {
  std::set<std::string> gone;
  /// By what a device's times are multiplied; null: by 1.
  std::function<double(const std::string&)> slowness = nullptr;
  std::int64_t batch = 0;  ///< samples a step; 0: as many as was asked for
};

/// The best split of a batch over the inputs' devices in that setting, by the prices.
/// Infeasible, with arithmetic, where none is possible; a usage error where there are no prices.
Result<std::vector<policy::Share>> find_split(const ChosenPlan& chosen,
                                              const DeviceSetting& setting);

}  // namespace motley::control
