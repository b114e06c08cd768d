#pragma once

#include <string>

#include "motley/base/json.h"
#include "motley/base/result.h"

namespace motley::bench {

/// Plans Sailor's layer profiles on random clusters of two or three zones with faster links inside.
/// Prints its lines and adds a row per cluster.
Result<void> run_zones(const std::string& data, Json& rows);

}  // namespace motley::bench
