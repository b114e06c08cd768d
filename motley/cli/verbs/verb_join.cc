#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/cli/app.h"
#include "motley/cli/context/verb.h"
#include "motley/cli/verbs/ask_run.h"
#include "motley/cluster/probe.h"
#include "motley/control/run_directory.h"
#include "motley/control/training/joiner.h"
#include "motley/run/hosts/here.h"

namespace motley::cli {
namespace {

struct JoinOptions {
  std::string address, device;
  /// Of a device that is not in the cluster file.
  std::string name, host, memory, bandwidth, latency;
  std::int64_t threads = 0;
  std::optional<double> speed;
  double timeout = 300;

  bool is_new() const { return device == "cpu" || device == "cuda"; }
};
std::vector<Flag> join_flags(JoinOptions& options) {
  constexpr const char* kNew =
      "A device that the cluster file has not (--device cpu, --device cuda)";
  return {
      {"address", &options.address,
       "WORD@HOST:PORT, as the run prints it, or a run directory of this machine"},
      {"--device", &options.device,
       "device of the run's cluster file (default: the first absent one); or cpu or cuda, for a "
       "device that is not in the file"},
      {"--timeout", &options.timeout, "seconds to wait until it takes part", kShown},
      {"--host", &options.host,
       "address by which the run's coordinator reaches it by ssh (default: this machine's name)",
       Flag::Default::kHidden, kNew},
      {"--name", &options.name,
       "name of its node: the device becomes NAME:0 (default: the host's name)",
       Flag::Default::kHidden, kNew},
      {"--threads", &options.threads,
       "threads of its process (default: this machine's cores; 1 with --speed or --host)",
       Flag::Default::kHidden, kNew},
      {"--speed", &options.speed, "emulated: share of a core's time, up to 1",
       Flag::Default::kHidden, kNew},
      {"--memory", &options.memory, "memory limit, such as 2GiB (default: this machine's memory)",
       Flag::Default::kHidden, kNew},
      {"--bandwidth", &options.bandwidth,
       "bandwidth of its link to each other node, such as 1Gbps; needs --latency (default: as the "
       "cluster file says)",
       Flag::Default::kHidden, kNew},
      {"--latency", &options.latency, "latency of that link, such as 100us", Flag::Default::kHidden,
       kNew}};
}

Result<run::ControlSocketAddress> find_control_socket(const std::string& address) {
  if (std::filesystem::is_directory(address))
    return run::read_control_socket(control::RunDirectory{address}.control_socket());
  const std::size_t at = address.find('@'), colon = address.rfind(':');
  const auto port = colon == std::string::npos
                        ? std::nullopt
                        : find_integer(std::string_view(address).substr(colon + 1));
  if (!port || *port < 1 || *port > 65535)
    return usage_error("cli.address",
                       "found '" + address +
                           "', wanted WORD@HOST:PORT, as the run prints it, or a run "
                           "directory of this machine");
  run::ControlSocketAddress control_socket;
  const std::size_t host = at == std::string::npos ? 0 : at + 1;
  if (host > 0) control_socket.word = address.substr(0, at);
  control_socket.host = address.substr(host, colon - host);
  control_socket.port = static_cast<int>(*port);
  return control_socket;
}

/// Returns a node's name from its host's: up to the first dot, unless it is an address.
std::string node_name(const std::string& host) {
  std::string name = host.substr(host.rfind('@') + 1);
  if (name.find_first_not_of("0123456789.:") != std::string::npos)
    name = name.substr(0, name.find('.'));
  std::replace(name.begin(), name.end(), ':', '-');
  return name;
}

Result<void> add_link(const JoinOptions& options, cluster::Cluster& joiner) {
  if (options.bandwidth.empty() && options.latency.empty()) return {};
  if (options.bandwidth.empty())
    return usage_error("cli.latency", "--latency goes with --bandwidth");
  cluster::Link& link = joiner.links.emplace_back();
  MOTLEY_ASSIGN(link.bandwidth, parse_rate(options.bandwidth));
  if (options.latency.empty()) return {};
  MOTLEY_ASSIGN(link.latency, parse_seconds(options.latency));
  return {};
}

/// Describes the device from the flags and, if it is on this machine, from a probe.
Result<cluster::Cluster> describe_joiner(const JoinOptions& options) {
  cluster::Cluster joiner;
  joiner.name = "newcomer";
  cluster::Node& node = joiner.nodes.emplace_back();
  node.host = options.host.empty() ? run::own_host_name() : options.host;
  node.name = options.name.empty() ? node_name(node.host) : options.name;
  cluster::Device& device = joiner.devices.emplace_back();
  device.node = NodeId(0);
  device.name = node.name + ":0";
  device.kind = options.device;
  if (options.host.empty()) {
    MOTLEY_ASSIGN(const cluster::ProbeReport found, cluster::probe_this_machine());
    const auto own = std::find_if(found.cluster.devices.begin(), found.cluster.devices.end(),
                                  [&](const auto& each) { return each.kind == device.kind; });
    if (own == found.cluster.devices.end() && device.kind == "cuda")
      return usage_error("cli.device", "--device cuda: this machine has no CUDA device");
    if (own != found.cluster.devices.end()) {
      device.model = own->model;
      device.uuid = own->uuid;
      device.memory = own->memory;
      device.quota = own->quota;
      device.threads = options.speed ? 1 : own->threads;
    }
  }
  if (options.threads != 0)
    device.threads = static_cast<int>(std::clamp<std::int64_t>(options.threads, -1, 1 << 20));
  device.speed = options.speed.value_or(1.0);
  if (!options.memory.empty()) {
    MOTLEY_ASSIGN(device.memory, parse_bytes(options.memory));
  }
  MOTLEY_RETURN_IF_ERROR(add_link(options, joiner));
  MOTLEY_RETURN_IF_ERROR(cluster::verify_cluster(joiner, "join"));
  return joiner;
}

struct Wanted {
  Json question;
  std::string device;
};
Result<Wanted> find_wanted(const JoinOptions& options,
                           const run::ControlSocketAddress& control_socket) {
  Json question{{"do", "join"}, {"version", version()}};
  if (options.is_new()) {
    MOTLEY_ASSIGN(const cluster::Cluster joiner, describe_joiner(options));
    question["newcomer"] = cluster::print_cluster(joiner);
    return Wanted{std::move(question), control::device_name(joiner)};
  }
  const bool is_described =
      options.speed || options.threads != 0 ||
      !(options.name + options.host + options.memory + options.bandwidth + options.latency).empty();
  if (is_described)
    return usage_error("cli.join",
                       "--name, --host, --threads, --speed, --memory, --bandwidth and --latency "
                       "describe a device that the cluster file has not: add --device cpu or cuda");
  MOTLEY_ASSIGN(const Json before, ask_run(control_socket, {{"do", "state"}}));
  std::string device = options.device;
  for (const Json& each : before.value("devices", Json::array()))
    if (device.empty() && each.value("state", "") == "absent" && each.value("has_come", true))
      device = each.value("name", "");
  if (device.empty())
    return usage_error("elastic.nobody",
                       "all devices of the run's cluster take part already; one that it has not "
                       "comes with --device cpu or cuda");
  question["device"] = device;
  return Wanted{std::move(question), device};
}

Result<int> join_run(const JoinOptions& options, const Context& context) {
  MOTLEY_ASSIGN(const run::ControlSocketAddress control_socket,
                find_control_socket(options.address));
  MOTLEY_ASSIGN(const Wanted wanted, find_wanted(options, control_socket));
  MOTLEY_RETURN_IF_ERROR(ask_run(control_socket, wanted.question));
  MOTLEY_ASSIGN(const Seen seen, wait_for_state(control_socket, wanted.device, options.timeout,
                                                {"training", "idle"}));
  context.result(seen.state == "idle"
                     ? fmt::format("{} is there since step {}, and idle{}\n", wanted.device,
                                   seen.step, seen.why.empty() ? "" : ": " + seen.why)
                     : fmt::format("{} takes part since step {}\n", wanted.device, seen.step),
                 Json{{"device", wanted.device}, {"step", seen.step}, {"state", seen.state}});
  return kDone;
}

}  // namespace

Verb join_verb() {
  return make_verb("join", "add a device to a running elastic job", join_flags, join_run);
}

}  // namespace motley::cli
