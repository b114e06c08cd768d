#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "motley/base/result.h"
#include "motley/run/hosts/hosts.h"
#include "motley/run/launch/agent_takeover.h"

namespace motley::run {

/// What another coordinator's training was left as its last checkpoint: of all agents, the one of
/// most steps that is whole becomes the latest in the run directory here. Its path; "": nobody has
/// one.
Result<std::string> bring_left_checkpoint(Hosts& hosts, const TakeoverState& inherited,
                                          const std::string& run_dir);

/// The newest of those of this host, by its path here. "": there is none.
std::string find_left_checkpoint(const TakeoverState& inherited);

}  // namespace motley::run
