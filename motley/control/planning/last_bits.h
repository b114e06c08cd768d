#pragma once

#include <cstdint>
#include <string>

#include "motley/control/planning/inputs.h"

namespace motley::control {

/// Writes the weights to `path` with the last bit of each nonzero weight changed up or down at
/// random, and returns inputs that use them. Shows what rounding alone decides. IO errors.
Result<Inputs> change_last_bits(const Inputs& inputs, const std::string& path, std::uint64_t seed);

}  // namespace motley::control
