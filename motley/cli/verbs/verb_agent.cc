#include "motley/cli/context/verb.h"
#include "motley/cli/launched.h"
#include "motley/run/hosts/agent.h"

namespace motley::cli {
namespace {

struct AgentFlags {};

std::vector<Flag> agent_flags(AgentFlags&) { return {}; }

Result<int> serve(const AgentFlags&, const Context& context) {
  MOTLEY_RETURN_IF_ERROR(run::serve_agent(agent_options(context)));
  return kDone;
}

}  // namespace

Verb agent_verb() {
  return make_verb("agent", "the program that `motley` starts on other hosts; not for people",
                   agent_flags, serve);
}

}  // namespace motley::cli
