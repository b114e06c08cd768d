#pragma once

#include <string>

#include "motley/base/json_forward.h"
#include "motley/control/planning/prediction.h"

namespace motley::cli {

/// Keys beside the verbs' own: intervals, their basis, and what each device does and holds.
void add_prediction(const control::Predicted& predicted, Json& object);
/// Key `mirrors`, of what is to outlive losses.
void add_mirrors(const control::Predicted& predicted, Json& object);
/// The same for people: a line a device.
std::string print_prediction(const control::Predicted& predicted);

}  // namespace motley::cli
