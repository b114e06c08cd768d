#include "motley/control/planning/binding.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "motley/base/text.h"
#include "motley/cluster/edit.h"

namespace motley::control {
namespace {

using Part = trace::Nanoseconds trace::Breakdown::*;

struct PartOfStep {
  const char* what;
  Part part;
};
constexpr PartOfStep kParts[] = {{"compute", &trace::Breakdown::compute},
                                 {"exchange", &trace::Breakdown::exposed_communication},
                                 {"waiting", &trace::Breakdown::waiting},
                                 {"bubble", &trace::Breakdown::bubble}};

double share_of(const DevicePrediction& device, Part part) {
  const trace::Nanoseconds total = device.price.parts.total();
  return total > 0 ? static_cast<double>(device.price.parts.*part) / static_cast<double>(total) : 0;
}

bool joins(const cluster::Link& link, const std::set<NodeId>& nodes) {
  const auto joined = std::count_if(link.between.begin(), link.between.end(),
                                    [&](NodeId id) { return nodes.count(id) > 0; });
  return link.between.empty() || joined >= std::min<std::ptrdiff_t>(2, std::ssize(link.between));
}

/// Returns the node or link that limits the group's rate, and a description.
std::pair<std::string, std::string> slowest_link(const cluster::Cluster& cluster,
                                                 const std::vector<DeviceId>& devices) {
  const auto route = cluster::group_route(cluster, devices);
  if (!route) return {"", "no link limits it"};
  std::set<NodeId> nodes;
  for (const DeviceId id : devices) nodes.insert(cluster.device(id).node);
  const std::string rate = format_rate(route->bandwidth);
  for (const NodeId id : nodes)
    if (nodes.size() > 1 && cluster.node(id).bandwidth == route->bandwidth)
      return {cluster.node(id).name,
              fmt::format("{} has {} for all its links", cluster.node(id).name, rate)};
  for (const cluster::Link* link : cluster::links_by_preference(cluster))
    if (joins(*link, nodes) &&
        std::min(link->bandwidth, link->capacity.value_or(link->bandwidth)) == route->bandwidth) {
      const std::string name = cluster::link_name(cluster, *link);
      return {name, fmt::format("the slowest link is {} ({})", name, rate)};
    }
  return {"", ""};
}

std::string sentence(const Binding& binding, const std::string& link) {
  const std::string who = name_some(binding.devices);
  const std::string share = fmt::format("{:.0f} % of the step", 100 * binding.share);
  if (binding.what == "compute") return fmt::format("compute: {} on {}", share, who);
  if (binding.what == "exchange")
    return fmt::format("exchange that no compute hides: {} on {}; {}", share, who, link);
  if (binding.what == "waiting") return fmt::format("waiting for others: {} on {}", share, who);
  return fmt::format("idle between stages, or at the end: {} on {}", share, who);
}

std::int64_t micro_batches_of(const plan::Plan& plan, DeviceId device) {
  for (const plan::Replica& replica : plan.replicas)
    for (const plan::Region& region : replica.regions)
      if (std::find(region.devices.begin(), region.devices.end(), device) != region.devices.end())
        return replica.micro_batches;
  return 1;
}

/// Adds the devices with full memory, each once even if it has several stages.
void add_memories(const Inputs& inputs, const plan::Plan& plan, const Predicted& predicted,
                  std::vector<Binding>& found) {
  std::set<std::string> told;
  for (std::size_t rank = 0; rank < predicted.devices.size(); ++rank) {
    const DevicePrediction& device = predicted.devices[rank];
    if (!is_full(inputs, plan, predicted, rank) || !told.insert(device.name).second) continue;
    const cluster::Device& about = inputs.cluster.device(plan::members(plan)[rank].device);
    const Bytes held(static_cast<std::int64_t>(device.peak.value));
    std::string text = fmt::format("memory of {}: {} of {}, no room for a sample more", device.name,
                                   format_bytes(held), format_bytes(*about.memory));
    if (about.spare.value > 0)
      text += fmt::format(" in {}, up to which it is planned", format_bytes(*about.room()));
    found.push_back({"memory",
                     {device.name},
                     "",
                     device.peak.value / static_cast<double>(about.memory->value),
                     std::move(text)});
  }
}

}  // namespace

std::string name_some(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 3;
  if (names.size() <= kMost + 1) return join(names, ", ");
  return fmt::format("{} and {} more", join(std::span(names).first(kMost), ", "),
                     names.size() - kMost);
}

bool is_full(const Inputs& inputs, const plan::Plan& plan, const Predicted& predicted,
             std::size_t rank) {
  const plan::Member member = plan::members(plan)[rank];
  const std::optional<Bytes> room = inputs.cluster.device(member.device).room();
  if (!room) return false;
  const DevicePrediction& device = predicted.devices[rank];
  const double samples =
      std::max(1.0, static_cast<double>(member.samples) /
                        static_cast<double>(micro_batches_of(plan, member.device)));
  const double more = static_cast<double>(device.price.memory.activations.value) / samples;
  return static_cast<double>(room->value) - device.peak.value < more;
}

std::vector<Binding> find_binding(const Inputs& inputs, const plan::Plan& plan,
                                  const Predicted& predicted) {
  std::vector<DeviceId> devices;
  for (const plan::Member& member : plan::members(plan)) devices.push_back(member.device);
  std::vector<Binding> found;
  for (const auto& [what, part] : kParts) {
    Binding binding{.what = what, .devices = {}, .link = "", .share = 0, .text = ""};
    for (const DevicePrediction& device : predicted.devices)
      binding.share = std::max(binding.share, share_of(device, part));
    if (binding.share < kBindingMargin) continue;
    for (const DevicePrediction& device : predicted.devices)
      if (share_of(device, part) >= binding.share - kBindingMargin)
        binding.devices.push_back(device.name);
    const auto [link, words] = slowest_link(inputs.cluster, devices);
    if (binding.what == "exchange") binding.link = link;
    binding.text = sentence(binding, words);
    found.push_back(std::move(binding));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Binding& a, const Binding& b) { return a.share > b.share; });
  add_memories(inputs, plan, predicted, found);
  return found;
}

}  // namespace motley::control
