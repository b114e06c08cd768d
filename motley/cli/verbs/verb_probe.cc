#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/cli/app.h"
#include "motley/cli/context/verb.h"
#include "motley/cluster/probe.h"
#include "motley/cluster/quantity_text.h"
#include "motley/control/survey/found_cluster.h"

namespace motley::cli {
namespace {

struct ProbeOptions {
  std::vector<std::string> hosts;
  std::string hostfile, output;
  bool allow_missing = false;
};

std::vector<Flag> probe_flags(ProbeOptions& options) {
  return {{"-o,--output", &options.output, "cluster file to write (default: stdout)"},
          {"--hosts", &options.hosts, "hosts by their ssh names: a,b,c (default: this one)"},
          {"--hostfile", &options.hostfile, "file with one host per line"},
          {"--allow-missing", &options.allow_missing, "leave out hosts that do not answer"}};
}

Json device_to_json(const cluster::Cluster& cluster, const cluster::Device& device) {
  return {{"name", device.name},
          {"node", cluster.node(device.node).name},
          {"kind", device.kind},
          {"threads", device.threads},
          {"speed", device.speed},
          {"memory_bytes", device.memory ? Json(device.memory->value) : Json(nullptr)}};
}

Json number_or_null(const std::optional<BytesPerSecond>& rate) {
  return rate ? Json(rate->value) : Json(nullptr);
}

Json link_to_json(const cluster::Cluster& cluster, const cluster::Link& link) {
  Json between = Json::array();
  for (const NodeId id : link.between) between.push_back(cluster.node(id).name);
  return {{"between", between},
          {"bandwidth_bytes_per_s", link.bandwidth.value},
          {"latency_s", link.latency.value},
          {"capacity_bytes_per_s", number_or_null(link.capacity)}};
}

Json host_to_json(const cluster::Node& node, const control::HostFacts& facts) {
  return {{"node", node.name},
          {"host", node.host},
          {"motley", facts.motley},
          {"torch", facts.torch},
          {"processor", facts.processor},
          {"instructions", facts.instructions},
          {"cores", facts.cores},
          {"clock_ahead_s", facts.clock_ahead.value},
          {"bandwidth_bytes_per_s", number_or_null(node.bandwidth)}};
}

/// Splits "a,b" and "c" into a, b, c. Takes the first word of a file's lines, without comments.
Result<std::vector<std::string>> read_hosts(const ProbeOptions& options) {
  std::vector<std::string> names;
  const auto add = [&](std::string_view name) {
    const std::string host(trim(name));
    if (!host.empty() && std::find(names.begin(), names.end(), host) == names.end())
      names.push_back(host);
  };
  for (const std::string& list : options.hosts)
    for (const std::string_view name : split(list, ',')) add(name);
  if (options.hostfile.empty()) return names;
  MOTLEY_ASSIGN(const std::string text, read_file(options.hostfile));
  for (std::string_view line : split(text, '\n')) {
    line = trim(line.substr(0, line.find('#')));
    add(line.substr(0, line.find_first_of(" \t")));
  }
  if (names.empty()) return usage_error("probe.hosts", options.hostfile + ": names no host");
  return names;
}

struct Probed {
  cluster::Cluster cluster;
  std::vector<control::HostFacts> facts;
  std::vector<std::string> notes;
};

Result<Probed> probe_hosts(const std::vector<std::string>& hosts, bool allow_missing,
                           const Context& context) {
  context.note(fmt::format("probe: {} hosts", hosts.size()));
  MOTLEY_ASSIGN(
      control::FoundHosts found,
      context.workers->find_hosts(hosts, [&](const std::string& line) { context.note(line); }));
  for (const auto& [host, error] : found.missing) {
    if (!allow_missing || found.hosts.empty()) return tl::make_unexpected(error);
    context.note(fmt::format("left out: {}", error.message));
  }
  MOTLEY_ASSIGN(control::FoundCluster made, control::make_found_cluster(found, "found"));
  return Probed{std::move(made.cluster), std::move(found.facts), std::move(made.notes)};
}

Result<Probed> probe_here(const Context& context) {
  MOTLEY_ASSIGN(cluster::ProbeReport report, cluster::probe_this_machine());
  const auto torch = context.workers->torch_version();
  control::HostFacts facts{.motley = version(),
                           .torch = torch ? *torch : "",
                           .processor = report.processor,
                           .instructions = report.instructions,
                           .cores = report.cores};
  return Probed{std::move(report.cluster), {std::move(facts)}, std::move(report.notes)};
}

Json probed_to_json(const Probed& probed) {
  Json object = {{"devices", Json::array()},
                 {"links", Json::array()},
                 {"hosts", Json::array()},
                 {"notes", probed.notes}};
  for (const cluster::Device& device : probed.cluster.devices)
    object["devices"].push_back(device_to_json(probed.cluster, device));
  for (const cluster::Link& link : probed.cluster.links)
    object["links"].push_back(link_to_json(probed.cluster, link));
  for (std::size_t i = 0; i < probed.facts.size(); ++i)
    object["hosts"].push_back(host_to_json(probed.cluster.nodes[i], probed.facts[i]));
  return object;
}

Result<int> probe(const ProbeOptions& options, const Context& context) {
  MOTLEY_ASSIGN(std::vector<std::string> hosts, read_hosts(options));
  if (hosts.empty()) hosts = context.workers->launched_hosts();
  MOTLEY_ASSIGN(const Probed probed, hosts.empty()
                                         ? probe_here(context)
                                         : probe_hosts(hosts, options.allow_missing, context));
  for (const std::string& note : probed.notes) context.note(note);
  const std::string text = cluster::print_cluster(probed.cluster);
  const Json object = probed_to_json(probed);
  if (options.output.empty()) {
    context.result(text, object);
    return kDone;
  }
  MOTLEY_RETURN_IF_ERROR(write_file_atomic(options.output, text));
  context.result(
      fmt::format("wrote {} ({} devices)\n", options.output, probed.cluster.devices.size()),
      object);
  return kDone;
}

}  // namespace

Verb probe_verb() {
  return led(
      make_verb("probe", "write a cluster file for this machine or several", probe_flags, probe));
}

}  // namespace motley::cli
