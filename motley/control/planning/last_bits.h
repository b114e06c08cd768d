#pragma once

#include <cstdint>
#include <string>

#include "motley/control/planning/inputs.h"

namespace motley::control {

/// Writes a copy of the inputs' weights to `path` and returns inputs that use it. Each nonzero
/// weight becomes the next larger or next smaller number at random, so that training from it shows
/// the effect of rounding alone. IO errors name the path.
Result<Inputs> change_last_bits(const Inputs& inputs, const std::string& path, std::uint64_t seed);

}  // namespace motley::control
