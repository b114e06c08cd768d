#pragma once

#include <cstdint>
#include <string>

#include "motley/control/planning/inputs.h"

namespace motley::control {

/// Writes a copy of the model to `path`, in which each nonzero weight is the next larger or smaller
/// number at random, and returns inputs that use it. Training from them shows what rounding alone
/// decides. IO errors name the path.
Result<Inputs> change_last_bits(const Inputs& inputs, const std::string& path, std::uint64_t seed);

}  // namespace motley::control
