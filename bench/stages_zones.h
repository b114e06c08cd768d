#pragma once

#include <string>

#include "motley/base/json.h"
#include "motley/base/result.h"

namespace motley::bench {

/// Plans Sailor's profiles on random clusters of two or three zones: prints lines, adds rows.
Result<void> run_zones(const std::string& data, Json& rows);

}  // namespace motley::bench
