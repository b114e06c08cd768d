#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "motley/base/text.h"
#include "motley/control/planning/binding.h"
#include "motley/control/planning/what_if.h"

namespace motley::control {
namespace {

std::string device_text(const cluster::Device& device) {
  return fmt::format("{} {} {} {} {} {}", device.kind, quote(device.model), device.threads,
                     print_float(device.speed), print_float(device.quota.value_or(1)),
                     device.memory.value_or(Bytes(-1)).value);
}

/// Returns texts that are equal for identical nodes; the other ends of links do not count.
std::vector<std::string> node_texts(const cluster::Cluster& cluster) {
  std::vector<std::string> texts;
  for (const cluster::Node& node : cluster.nodes)
    texts.push_back(
        fmt::format("{} {} {} {}", node.spot, print_float(node.price_per_hour.value_or(-1)),
                    print_float(node.bandwidth.value_or(BytesPerSecond(-1)).value), node.peers));
  for (const cluster::Device& device : cluster.devices)
    texts[device.node.index()] += "; " + device_text(device);
  for (const cluster::Link& link : cluster.links)
    for (const NodeId id : link.between)
      texts[id.index()] +=
          fmt::format("; {} {} {} {}", link.between.size(), print_float(link.bandwidth.value),
                      print_float(link.latency.value),
                      print_float(link.capacity.value_or(link.bandwidth).value));
  return texts;
}

/// Collects the questions about a cluster and a plan, each text once.
class Asking {
 public:
  explicit Asking(const cluster::Cluster& cluster)
      : cluster_(cluster), nodes_(node_texts(cluster)) {
    for (const cluster::Device& device : cluster.devices) ++of_kind_[device.kind];
  }

  void ask_more_and_less() {
    std::set<std::string> seen;
    std::vector<DeviceId> firsts;
    for (const DeviceId id : cluster::all_devices(cluster_))
      if (seen.insert(class_of(id)).second) firsts.push_back(id);
    for (const DeviceId id : firsts) ask("+1 " + like(cluster_.device(id)));
    for (const DeviceId id : firsts) ask("-" + cluster_.device(id).name);
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      if (seen.insert(nodes_[i]).second && devices_on(i) > 1) ask("-" + cluster_.nodes[i].name);
    for (const auto& [kind, count] : of_kind_)
      if (count > 1 && of_kind_.size() > 1) ask("-" + kind);
  }

  void ask_links() {
    for (const cluster::Link& link : cluster_.links)
      if (cluster_.links.size() <= kMostLinks)
        ask(fmt::format("link {} x2", cluster::link_name(cluster_, link)));
    if (cluster_.links.size() > 1) ask("links x2");
  }

  /// Asks for twice the memory of the device, or of its kind if that has several devices.
  void ask_memory(DeviceId id) {
    const cluster::Device& device = cluster_.device(id);
    if (!device.memory || !with_memory_.insert(class_of(id)).second) return;
    const bool is_kind = device.kind != "cpu" && of_kind_.at(device.kind) > 1;
    ask(fmt::format("memory {} x2", is_kind ? device.kind : device.name));
  }

  void ask(std::string text) {
    if (std::find(texts_.begin(), texts_.end(), text) == texts_.end())
      texts_.push_back(std::move(text));
  }

  const std::vector<std::string>& texts() const { return texts_; }

 private:
  static constexpr std::size_t kMostLinks = 8;

  std::string class_of(DeviceId id) const {
    const cluster::Device& device = cluster_.device(id);
    return device_text(device) + " on " + nodes_[device.node.index()];
  }

  /// Returns "KIND@NODE" if the kind names a device model, else the device's name.
  std::string like(const cluster::Device& device) const {
    if (device.kind == "cpu" || device.kind == "cuda") return device.name;
    return fmt::format("{}@{}", device.kind, cluster_.node(device.node).name);
  }

  std::int64_t devices_on(std::size_t node) const {
    return std::count_if(cluster_.devices.begin(), cluster_.devices.end(),
                         [&](const auto& device) { return device.node.index() == node; });
  }

  const cluster::Cluster& cluster_;
  std::vector<std::string> nodes_;
  std::map<std::string, int> of_kind_;
  std::set<std::string> with_memory_;
  std::vector<std::string> texts_;
};

}  // namespace

std::vector<WhatIf> obvious_what_ifs(const Asked& asked, const Inputs& inputs,
                                     const plan::Plan& plan, const Predicted& predicted) {
  Asking asking(asked.cluster);
  asking.ask_more_and_less();
  asking.ask_links();
  const std::vector<plan::Member> members = plan::members(plan);
  std::set<DeviceId> used;
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    used.insert(members[rank].device);
    if (is_full(inputs, plan, predicted, rank)) asking.ask_memory(members[rank].device);
  }
  for (const DeviceId id : inputs.devices)
    if (used.count(id) == 0) asking.ask_memory(id);
  asking.ask("batch x2");
  if (plan.global_batch % 2 == 0) asking.ask("batch x0.5");
  std::vector<WhatIf> questions;
  for (const std::string& text : asking.texts()) {
    // Some edits are impossible, such as removing the only device; some are duplicates.
    auto question = parse_what_if(text, asked);
    if (!question) continue;
    const bool is_asked = std::any_of(questions.begin(), questions.end(), [&](const WhatIf& other) {
      return other.machines.cluster == question->machines.cluster &&
             other.global_batch == question->global_batch;
    });
    if (!is_asked) questions.push_back(std::move(*question));
  }
  return questions;
}

}  // namespace motley::control
