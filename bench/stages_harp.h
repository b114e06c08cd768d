#pragma once

#include <string>

#include "motley/base/json.h"
#include "motley/base/result.h"

namespace motley::bench {

/// Compares HARP's measured plans (data/harp) with Motley's, both simulated over nominal rates, as
/// no layer times are published. Prints its lines and adds a row per model.
Result<void> run_harp(const std::string& data, Json& rows);

}  // namespace motley::bench
