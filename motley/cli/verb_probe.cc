#include <fmt/format.h>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/cli/verb.h"
#include "motley/cluster/probe.h"

namespace motley::cli {
namespace {

struct ProbeOptions {
  std::string output;
};

std::vector<Flag> probe_flags(ProbeOptions& options) {
  return {{"-o,--output", &options.output, "cluster file to write (default: stdout)"}};
}

Json device_to_json(const cluster::Cluster& cluster, const cluster::Device& device) {
  return {{"name", device.name},
          {"node", cluster.node(device.node).name},
          {"kind", device.kind},
          {"threads", device.threads},
          {"speed", device.speed},
          {"memory_bytes", device.memory ? Json(device.memory->value) : Json(nullptr)}};
}

Json link_to_json(const cluster::Cluster& cluster, const cluster::Link& link) {
  Json between = Json::array();
  for (const NodeId id : link.between) between.push_back(cluster.node(id).name);
  return {{"between", between},
          {"bandwidth_bytes_per_s", link.bandwidth.value},
          {"latency_s", link.latency.value}};
}

Result<int> probe_machine(const ProbeOptions& options, const Context& context) {
  MOTLEY_ASSIGN(const cluster::ProbeReport report, cluster::probe_this_machine());
  for (const std::string& note : report.notes) context.note(note);
  const std::string text = cluster::print_cluster(report.cluster);
  Json object = {{"devices", Json::array()}, {"links", Json::array()}, {"notes", report.notes}};
  for (const cluster::Device& device : report.cluster.devices)
    object["devices"].push_back(device_to_json(report.cluster, device));
  for (const cluster::Link& link : report.cluster.links)
    object["links"].push_back(link_to_json(report.cluster, link));
  if (options.output.empty()) {
    context.result(text, object);
    return kDone;
  }
  MOTLEY_RETURN_IF_ERROR(write_file_atomic(options.output, text));
  context.result(
      fmt::format("wrote {} ({} devices)\n", options.output, report.cluster.devices.size()),
      object);
  return kDone;
}

}  // namespace

Verb probe_verb() {
  return make_verb("probe", "describe this machine as a cluster file", probe_flags, probe_machine);
}

}  // namespace motley::cli
