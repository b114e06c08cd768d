#include "motley/control/survey/found_cluster.h"

#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <set>
#include <utility>

#include "motley/cluster/quantity_text.h"
#include "motley/control/survey/found_links.h"

namespace motley::control {
namespace {

std::string as_word(std::string text) {
  for (char& c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_') c = '-';
  return text;
}

Result<void> add_nodes(const FoundHosts& found, cluster::Cluster& cluster) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < found.hosts.size(); ++i) {
    cluster::Node node = found.clusters[i].nodes.front();
    node.host = found.hosts[i];
    if (names.contains(node.name)) node.name = as_word(node.host);
    if (!names.insert(node.name).second)
      return usage_error("probe.names", fmt::format("{} is the name of two hosts", node.name));
    for (cluster::Device device : found.clusters[i].devices) {
      device.node = NodeId(static_cast<std::int64_t>(i));
      device.name = fmt::format("{}:{}", node.name, device.index);
      cluster.devices.push_back(std::move(device));
    }
    cluster.nodes.push_back(std::move(node));
  }
  return {};
}

void note_hosts(const FoundHosts& found, std::vector<std::string>& notes) {
  for (std::size_t i = 0; i < found.facts.size(); ++i) {
    const HostFacts& facts = found.facts[i];
    notes.push_back(fmt::format("{}: {} cores of {}, {}; Motley {}, PyTorch {}", found.hosts[i],
                                facts.cores, facts.processor, facts.instructions, facts.motley,
                                facts.torch));
    if (std::string note = clock_note(found.hosts[i], facts.clock_ahead); !note.empty())
      notes.push_back(std::move(note));
  }
}

void note_wires(const FoundHosts& found, const FoundLinks& links, std::vector<std::string>& notes) {
  const auto& hosts = found.hosts;
  if (hosts.size() <= kMostPaired)
    for (const Wire& wire : found.wires.alone)
      notes.push_back(fmt::format("{} to {}: {}, {}", hosts[wire.flow.from], hosts[wire.flow.to],
                                  cluster::short_rate(wire.bandwidth),
                                  cluster::short_seconds(wire.latency)));
  for (const Load& load : found.wires.loads)
    notes.push_back(fmt::format("{} flows at once ({} to {}, ...): {} together", load.flows.size(),
                                hosts[load.flows[0].from], hosts[load.flows[0].to],
                                cluster::short_rate(BytesPerSecond(load.sum()))));
  for (const FoundLinks::Misfit& misfit : links.misfits)
    notes.push_back(fmt::format("{} and {}: measured {}, written as {}", hosts[misfit.flow.from],
                                hosts[misfit.flow.to], cluster::short_rate(misfit.measured),
                                cluster::short_rate(misfit.written)));
  for (const std::size_t host : links.faster_together)
    notes.push_back(fmt::format(
        "{}: several flows get more together than its link says, which has one rate for a node",
        hosts[host]));
}

}  // namespace

std::string clock_note(const std::string& host, Seconds ahead) {
  constexpr double kMost = 1;  // seconds
  if (std::abs(ahead.value) <= kMost) return "";
  return fmt::format(
      "{}: its clock is {:.1f} s {} this one's: times in its logs and of its files are its own; "
      "nothing else of a run depends on it",
      host, std::abs(ahead.value), ahead.value > 0 ? "ahead of" : "behind");
}

Result<FoundCluster> make_found_cluster(const FoundHosts& found, const std::string& name) {
  FoundCluster made;
  made.cluster.name = name;
  MOTLEY_RETURN_IF_ERROR(add_nodes(found, made.cluster));
  FoundLinks links = find_links(found.wires);
  made.cluster.links = std::move(links.links);
  for (std::size_t i = 0; i < links.cards.size(); ++i)
    made.cluster.nodes[i].bandwidth = links.cards[i];
  note_hosts(found, made.notes);
  note_wires(found, links, made.notes);
  MOTLEY_RETURN_IF_ERROR(cluster::verify_cluster(made.cluster, "the hosts that were found"));
  return made;
}

}  // namespace motley::control
