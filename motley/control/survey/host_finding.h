#pragma once

#include <string>
#include <vector>

#include "motley/control/workers.h"
#include "motley/run/hosts/hosts.h"

namespace motley::control {

/// Asks the machines' agents for their description, and measures the links that LinkSurvey chooses.
/// Errors: `host.twice`; a host stops answering, or reaches no other host.
Result<FoundHosts> ask_hosts(run::Hosts& hosts, const std::vector<std::string>& names,
                             const Workers::Tell& tell);

}  // namespace motley::control
