#pragma once

#include <string>
#include <vector>

#include "motley/control/workers.h"
#include "motley/run/hosts/hosts.h"

namespace motley::control {

/// Asks the agents of machines what they are, and measures what joins them as LinkSurvey decides.
/// Errors: `host.twice`; of a host that answered once and then no more, or reaches no other.
Result<FoundHosts> ask_hosts(run::Hosts& hosts, const std::vector<std::string>& names,
                             const Workers::Tell& tell);

}  // namespace motley::control
