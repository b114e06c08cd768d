#pragma once

#include <string>

#include "motley/base/json_forward.h"
#include "motley/control/planning/layers.h"

namespace motley::cli {

/// Prints a plan of stages as a table with a line per stage of each pipeline configuration, then
/// the runners-up, the bound, idle devices and what was left out. Without a plan, prints the
/// reason.
std::string print_stages(const control::StageAnswer& answer);

/// Keys of docs/interfaces.md.
Json stages_to_json(const control::StageAnswer& answer);

}  // namespace motley::cli
