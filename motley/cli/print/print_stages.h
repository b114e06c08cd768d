#pragma once

#include <string>

#include "motley/base/json_forward.h"
#include "motley/control/planning/layers.h"

namespace motley::cli {

/// Prints a table with a line per stage of each pipeline configuration, then the runners-up, the
/// bound, idle devices and omissions; or why there is no plan.
std::string print_stages(const control::StageAnswer& answer);

Json stages_to_json(const control::StageAnswer& answer);

}  // namespace motley::cli
