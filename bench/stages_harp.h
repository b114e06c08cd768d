#pragma once

#include <string>

#include "motley/base/json.h"
#include "motley/base/result.h"

namespace motley::bench {

/// HARP's measured plans (data/harp) beside Motley's, both simulated over nominal rates: no layer
/// times are published. Prints its lines and adds a row a model.
Result<void> run_harp(const std::string& data, Json& rows);

}  // namespace motley::bench
