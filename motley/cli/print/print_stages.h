#pragma once

#include <string>

#include "motley/base/json_forward.h"
#include "motley/control/planning/layers.h"

namespace motley::cli {

/// A plan of stages as a table: a line for each stage of each shape of replica, then the
/// runner-ups, the bound, idle devices and what was left out. Without a plan, why there is none.
std::string print_stages(const control::StageAnswer& answer);

/// Keys of docs/interfaces.md.
Json stages_to_json(const control::StageAnswer& answer);

}  // namespace motley::cli
