#include "motley/cli/launched.h"

#include <fmt/format.h>

#include <filesystem>
#include <string>

#include "motley/base/exit_code.h"
#include "motley/base/json.h"
#include "motley/cli/app.h"
#include "motley/cluster/probe.h"
#include "motley/control/survey/worker_build.h"
#include "motley/run/hosts/relay_process.h"
#include "motley/run/launch/environment.h"

namespace motley::cli {
namespace {

std::string variable(const Context& context, const std::string& name) {
  const auto found = context.environment.find(name);
  return found == context.environment.end() ? "" : found->second;
}

Result<Json> probe_host() {
  MOTLEY_ASSIGN(const cluster::ProbeReport report, cluster::probe_this_machine());
  return Json{{"cluster", cluster::print_cluster(report.cluster)},
              {"processor", report.processor},
              {"instructions", report.instructions},
              {"cores", report.cores},
              {"notes", report.notes}};
}

/// Serves as an agent until the coordinator sends its exit code.
Result<int> serve_lead(const run::RankPlace& place, const Context& context) {
  context.note(fmt::format("rank {} of {} ({})", place.rank, place.size, place.source));
  run::AgentOptions options = agent_options(context);
  MOTLEY_ASSIGN(run::RelayProcess relay, run::start_relay(options.worker, ""));
  options.input = relay.child.output.number();
  options.output = relay.child.input.number();
  options.hello["address"] = relay.address;
  options.passes_signals = true;
  const auto code = run::serve_agent(options);
  relay.child.input.reset();
  run::wait_for_exit(relay.child.pid);
  MOTLEY_RETURN_IF_ERROR(code);
  if (*code) return **code;
  return runtime_error("run.peer-lost",
                       fmt::format("rank {}: rank 0 is gone, or the launcher's store", place.rank));
}

}  // namespace

run::AgentOptions agent_options(const Context& context) {
  run::AgentOptions options;
  const std::filesystem::path program = context.program;
  options.worker = control::worker_of(program.string());
  options.program = context.program;
  const std::string cache = variable(context, "XDG_CACHE_HOME");
  options.cache = (cache.empty() ? variable(context, "HOME") + "/.cache" : cache) + "/motley/hosts";
  const auto torch = context.workers->torch_version();
  options.hello = {{"motley", version()},
                   {"torch", torch ? *torch : ""},
                   {"fault", torch ? "" : torch.error().message},
                   {"ssh_connection", variable(context, "SSH_CONNECTION")}};
  options.probe = probe_host;
  return options;
}

bool is_launched(const Context& context) {
  const auto place = run::find_rank_place(context.environment);
  return place && *place && (*place)->size > 1;
}

Result<int> call_launched(const Verb& verb, const Context& context) {
  MOTLEY_ASSIGN(const auto place, run::find_rank_place(context.environment));
  if (!place) return verb.call(context);
  if (place->rank > 0) return serve_lead(*place, context);
  const auto gathered = context.workers->gather(*place);
  const Result<int> code = gathered ? verb.call(context) : tl::make_unexpected(gathered.error());
  context.workers->end(code ? *code : exit_code(code.error()));
  return code;
}

}  // namespace motley::cli
