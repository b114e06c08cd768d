#include <fmt/format.h>

#include "motley/base/json.h"
#include "motley/cli/context/verb.h"
#include "motley/cli/verbs/ask_run.h"
#include "motley/control/run_directory.h"

namespace motley::cli {
namespace {

struct LeaveOptions {
  std::string run_dir, device;
  double timeout = 300;
};

std::vector<Flag> leave_flags(LeaveOptions& options) {
  return {{"run_dir", &options.run_dir, "run directory of a run with --elastic"},
          {"device", &options.device, "name of a device"},
          {"--timeout", &options.timeout, "seconds to wait until it has left", kShown}};
}

Result<int> leave_run(const LeaveOptions& options, const Context& context) {
  MOTLEY_ASSIGN(const run::ControlSocketAddress control_socket,
                run::read_control_socket(control::RunDirectory{options.run_dir}.control_socket()));
  MOTLEY_RETURN_IF_ERROR(ask_run(control_socket, {{"do", "leave"}, {"device", options.device}}));
  MOTLEY_ASSIGN(const Seen seen,
                wait_for_state(control_socket, options.device, options.timeout, {"absent"}));
  context.result(fmt::format("{} has left after step {}\n", options.device, seen.step),
                 Json{{"device", options.device}, {"step", seen.step}});
  return kDone;
}

}  // namespace

Verb leave_verb() {
  return make_verb("leave", "remove a device from a running elastic job", leave_flags, leave_run);
}

}  // namespace motley::cli
