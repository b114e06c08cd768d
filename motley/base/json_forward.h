#pragma once

#include <nlohmann/json_fwd.hpp>

namespace motley {

/// JSON with keys in insertion order, so that output is stable. Enough to declare functions that
/// take or return it; parsing the whole of it takes a compiler two seconds a file (json.h).
using Json = nlohmann::ordered_json;

}  // namespace motley
