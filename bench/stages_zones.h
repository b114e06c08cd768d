#pragma once

#include <string>

#include "motley/base/json.h"
#include "motley/base/result.h"

namespace motley::bench {

/// Sailor's layer profiles on clusters drawn at random of two or three zones with faster links
/// inside. Prints its lines and adds a row a cluster.
Result<void> run_zones(const std::string& data, Json& rows);

}  // namespace motley::bench
