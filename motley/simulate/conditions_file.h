#pragma once

#include <string>
#include <string_view>

#include "motley/base/result.h"
#include "motley/simulate/conditions.h"

namespace motley::simulate {

/// Parses JSON of schema "motley.conditions/1" (docs/formats/conditions.md). Usage errors "NAME:
/// ..."; unknown keys come with a suggestion. Numbers are checked where they are used.
Result<Conditions> parse_conditions(std::string_view text, const std::string& name);

}  // namespace motley::simulate
