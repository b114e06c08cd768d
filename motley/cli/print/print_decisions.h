#pragma once

#include <string>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/policy/decision.h"

namespace motley::cli {

/// A decision without the whole of its plan.
Json decision_to_json(const policy::Decision& decision);

/// What was seen, expected and came of each; nothing of a run that stayed as it began.
std::string decision_lines(const std::vector<policy::Decision>& decisions);

}  // namespace motley::cli
