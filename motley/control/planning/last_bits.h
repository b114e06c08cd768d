#pragma once

#include <cstdint>
#include <string>

#include "motley/control/planning/inputs.h"

namespace motley::control {

/// The inputs, of a model with weights, with another model file, which it writes to `path`: every
/// weight but those that are 0 is the next larger or the next smaller number, at random. A training
/// from them shows what rounding alone decides. IO errors name the path.
Result<Inputs> change_last_bits(const Inputs& inputs, const std::string& path, std::uint64_t seed);

}  // namespace motley::control
