#pragma once

#include "motley/base/result.h"
#include "motley/cli/context/context.h"
#include "motley/cli/context/verb.h"
#include "motley/run/hosts/agent.h"

namespace motley::cli {

/// What an agent of this host needs to know.
run::AgentOptions agent_options(const Context& context);

/// Did an external launcher start this process as one of several ranks?
bool is_launched(const Context& context);

/// Calls a verb in a process that torchrun, srun, mpirun or the like may have started (the
/// variables say so: run/launch/environment.h). Rank 0 does the verb's work; the others are agents
/// that work for it, and end with its exit code. Without a launcher: just the verb.
Result<int> call_launched(const Verb& verb, const Context& context);

}  // namespace motley::cli
