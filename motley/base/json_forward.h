#pragma once

#include <nlohmann/json_fwd.hpp>

namespace motley {

/// JSON with keys in insertion order, so that output is stable. Enough for declarations of
/// functions; the whole library (json.h) costs a compiler two seconds per file.
using Json = nlohmann::ordered_json;

}  // namespace motley
