#pragma once

#include <string>

#include "motley/base/json_forward.h"
#include "motley/control/planning/prediction.h"

namespace motley::cli {

/// Adds intervals, their basis, and each device's work and memory.
void add_prediction(const control::Predicted& predicted, Json& object);
/// Adds the key `mirrors` for a plan that must survive losses.
void add_mirrors(const control::Predicted& predicted, Json& object);
/// Prints a line per device.
std::string print_prediction(const control::Predicted& predicted);

}  // namespace motley::cli
