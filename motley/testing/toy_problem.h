#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "motley/search/split/planner_inputs.h"
#include "motley/testing/table_evaluator.h"

namespace motley::search {

/// A problem with everything it points to. Movable, so that functions can return it.
struct ToyProblem {
  std::unique_ptr<cluster::Cluster> cluster = std::make_unique<cluster::Cluster>();
  std::vector<TableEvaluator::Device> tables;
  TableEvaluator::Group group;
  std::unique_ptr<TableEvaluator> evaluator;
  plan::Problem problem;
  const graph::Graph* graph = nullptr;
  /// Operators have at most a graph, no costs.
  PlannerInputs inputs() const { return {evaluator.get(), graph}; }

  /// Adds a device on a node of its own, named "nN:0".
  void add_device(TableEvaluator::Device table, std::optional<Bytes> memory = {}) {
    const auto node = static_cast<std::int64_t>(cluster->nodes.size());
    cluster->nodes.push_back({.name = "n" + std::to_string(node)});
    add_device_on(NodeId(node), std::move(table), memory);
  }
  void add_device_on(NodeId node, TableEvaluator::Device table, std::optional<Bytes> memory = {}) {
    const auto index = std::count_if(cluster->devices.begin(), cluster->devices.end(),
                                     [&](const auto& device) { return device.node == node; });
    cluster::Device device;
    device.node = node;
    device.name = cluster->node(node).name + ":" + std::to_string(index);
    device.kind = "cpu";
    device.index = device.local_index = static_cast<int>(index);
    device.memory = memory;
    problem.devices.emplace_back(static_cast<std::int64_t>(cluster->devices.size()));
    cluster->devices.push_back(std::move(device));
    tables.push_back(std::move(table));
  }
  /// Call last. `batch` samples; the evaluator prices by the tables and `group`.
  const plan::Problem& finish(std::int64_t batch) {
    cluster->name = "toy";
    evaluator = std::make_unique<TableEvaluator>(tables, group);
    problem.cluster = cluster.get();
    problem.model_hash = "00000000000000aa";
    problem.global_batch = batch;
    return problem;
  }
};

/// Makes a device that computes `seconds` per sample after `fixed`, without exchanges.
inline TableEvaluator::Device linear_device(double seconds, double fixed = 0.0) {
  TableEvaluator::Device device;
  device.alone.end.points = {{0, fixed}, {1, fixed + seconds}};
  device.shared = device.alone;
  return device;
}

inline GroupExchanges no_exchange(const std::vector<DeviceId>&) { return {}; }

/// Makes two devices of 1 s per sample that exchange once for `seconds` after their compute.
inline ToyProblem pair_with_exchange(double seconds) {
  ToyProblem toy;
  for (int i = 0; i < 2; ++i) {
    TableEvaluator::Device device = linear_device(1);
    device.shared.ready = {device.shared.end};
    device.shared.update = {0.0};
    toy.add_device(device);
  }
  toy.group = [seconds](const std::vector<DeviceId>&) {
    return GroupExchanges{.exchange = {seconds}};
  };
  return toy;
}

}  // namespace motley::search
