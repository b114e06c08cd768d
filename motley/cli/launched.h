#pragma once

#include "motley/base/result.h"
#include "motley/cli/context/context.h"
#include "motley/cli/context/verb.h"
#include "motley/run/hosts/agent.h"

namespace motley::cli {

run::AgentOptions agent_options(const Context& context);

/// Did an external launcher start this process as one of several ranks?
bool is_launched(const Context& context);

/// Calls a verb, possibly in a process of torchrun, srun, mpirun or the like
/// (run/launch/environment.h). Rank 0 runs the verb; the others are its agents and end with its
/// exit code.
Result<int> call_launched(const Verb& verb, const Context& context);

}  // namespace motley::cli
