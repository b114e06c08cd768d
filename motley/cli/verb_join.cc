#include <fmt/format.h>

#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/cli/app.h"
#include "motley/cli/ask_run.h"
#include "motley/cli/verb.h"

namespace motley::cli {
namespace {

struct JoinOptions {
  std::string address, device;
  double timeout = 300;
};
std::vector<Flag> join_flags(JoinOptions& options) {
  return {{"address", &options.address, "HOST:PORT, as the run says it"},
          {"--device", &options.device,
           "of the run's cluster file; without it the first one that is not there"},
          {"--timeout", &options.timeout, "seconds to wait until it takes part", kShown}};
}

Result<int> join_run(const JoinOptions& options, const Context& context) {
  const std::size_t colon = options.address.rfind(':');
  const auto port = colon == std::string::npos
                        ? std::nullopt
                        : find_integer(std::string_view(options.address).substr(colon + 1));
  if (!port || *port < 1 || *port > 65535)
    return usage_error("cli.address", "found '" + options.address + "', wanted HOST:PORT");
  run::DoorAddress door;
  door.host = options.address.substr(0, colon);
  door.port = static_cast<int>(*port);
  MOTLEY_ASSIGN(const Json before, ask_run(door, {{"do", "state"}}));
  std::string device = options.device;
  for (const Json& each : before.value("devices", Json::array()))
    if (device.empty() && each.value("state", "") == "absent") device = each.value("name", "");
  if (device.empty())
    return usage_error("elastic.nobody", "all devices of the run's cluster take part already");
  MOTLEY_RETURN_IF_ERROR(
      ask_run(door, {{"do", "join"}, {"device", device}, {"version", version()}}));
  MOTLEY_ASSIGN(const std::int64_t step,
                wait_for_state(door, device, options.timeout, {"training", "idle"}));
  context.result(fmt::format("{} takes part since step {}\n", device, step),
                 Json{{"device", device}, {"step", step}});
  return kDone;
}

}  // namespace

Verb join_verb() {
  return make_verb("join", "bring a device into a running elastic job", join_flags, join_run);
}

}  // namespace motley::cli
