#include <fmt/format.h>

#include <filesystem>

#include "motley/base/json.h"
#include "motley/cli/app.h"
#include "motley/cli/verb.h"
#include "motley/cluster/probe.h"
#include "motley/run/hosts/agent.h"

namespace motley::cli {
namespace {

struct AgentFlags {};

std::vector<Flag> agent_flags(AgentFlags&) { return {}; }

std::string variable(const Context& context, const std::string& name) {
  const auto found = context.environment.find(name);
  return found == context.environment.end() ? "" : found->second;
}

Result<Json> probe_host() {
  MOTLEY_ASSIGN(const cluster::ProbeReport report, cluster::probe_this_machine());
  return Json{{"cluster", cluster::print_cluster(report.cluster)}, {"notes", report.notes}};
}

Result<int> serve(const AgentFlags&, const Context& context) {
  run::AgentOptions options;
  const std::filesystem::path program = context.program;
  options.worker = (program.parent_path() / "motley-worker").string();
  const std::string cache = variable(context, "XDG_CACHE_HOME");
  options.cache = (cache.empty() ? variable(context, "HOME") + "/.cache" : cache) + "/motley/hosts";
  const auto torch = context.workers->torch_version();
  options.hello = {{"motley", version()},
                   {"torch", torch ? *torch : ""},
                   {"fault", torch ? "" : torch.error().message},
                   {"ssh_connection", variable(context, "SSH_CONNECTION")}};
  options.probe = probe_host;
  MOTLEY_RETURN_IF_ERROR(run::serve_agent(options));
  return kDone;
}

}  // namespace

Verb agent_verb() {
  return make_verb("agent", "what `motley` starts on other hosts; not for people", agent_flags,
                   serve);
}

}  // namespace motley::cli
