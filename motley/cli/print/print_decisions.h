#pragma once

#include <string>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/policy/decision.h"

namespace motley::cli {

/// Prints a decision without its whole plan.
Json decision_to_json(const policy::Decision& decision);

/// Prints what each decision saw, expected and achieved; "" for a run that never changed.
std::string decision_lines(const std::vector<policy::Decision>& decisions);

}  // namespace motley::cli
