#pragma once

#include <string>
#include <string_view>

#include "motley/base/result.h"
#include "motley/simulate/conditions.h"

namespace motley::simulate {

/// JSON text of schema "motley.conditions/1" (docs/formats/conditions.md). Errors "NAME: ..."
/// (usage); unknown keys are refused with a suggestion. What the numbers may be is checked where
/// they are used.
Result<Conditions> parse_conditions(std::string_view text, const std::string& name);

}  // namespace motley::simulate
