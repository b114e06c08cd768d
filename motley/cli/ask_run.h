#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/base/result.h"
#include "motley/run/hosts/door.h"

namespace motley::cli {

/// Asks a running elastic job (control/requests.h); its error, or what it answers.
Result<Json> ask_run(const run::DoorAddress& door, const Json& question);

/// Asks again and again until the device is in one of these states: steps done then.
Result<std::int64_t> wait_for_state(const run::DoorAddress& door, const std::string& device,
                                    double seconds, const std::vector<std::string>& wanted);

}  // namespace motley::cli
