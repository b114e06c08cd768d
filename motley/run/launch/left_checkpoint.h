#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "motley/base/result.h"
#include "motley/run/hosts/hosts.h"
#include "motley/run/launch/agent_takeover.h"

namespace motley::run {

/// Brings a lost coordinator's last checkpoint: the whole one of most steps at any agent becomes
/// the latest in the local run directory. Returns its path; "": there is none.
Result<std::string> bring_left_checkpoint(Hosts& hosts, const TakeoverState& inherited,
                                          const std::string& run_dir);

/// Returns the local path of the newest one on this host; "": there is none.
std::string find_left_checkpoint(const TakeoverState& inherited);

}  // namespace motley::run
