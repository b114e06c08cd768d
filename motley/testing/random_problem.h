#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "motley/base/random.h"
#include "motley/testing/random_curves.h"
#include "motley/testing/toy_problem.h"

namespace motley::search {

struct RandomShape {
  int least_devices = 1, most_devices = 4;
  std::int64_t most_batch = 12;
  bool ordered_updates = true;  ///< one device is slower in all updates
  bool one_link = true;         ///< all pairs have the same link
};

using cost::add_curves;
using cost::random_curve;

inline TableEvaluator::Device random_device(SplitMix64& random, std::int64_t batch,
                                            std::size_t exchanges, bool ordered_updates) {
  TableEvaluator::Device device;
  const double slowness = 0.2 + 2 * random.uniform();
  device.shared = cost::random_step_curves(random, {batch, exchanges, slowness, ordered_updates});
  device.alone.end =
      add_curves(device.shared.end, Curve{{{1, slowness * static_cast<double>(exchanges)}}}, batch);
  device.base = Bytes(static_cast<std::int64_t>(random.below(20)));
  device.per_sample = Bytes(1 + static_cast<std::int64_t>(random.below(5)));
  return device;
}

/// Draws a problem; same seed, same problem. Half of the devices have memory limits.
inline ToyProblem random_problem(std::uint64_t seed, const RandomShape& shape) {
  SplitMix64 random(seed);
  ToyProblem toy;
  const auto count = shape.least_devices + static_cast<int>(random.below(static_cast<std::uint64_t>(
                                               shape.most_devices - shape.least_devices + 1)));
  const auto batch =
      1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(shape.most_batch)));
  const std::size_t exchanges = random.below(4);
  for (int i = 0; i < count; ++i) {
    TableEvaluator::Device device =
        i > 0 && random.below(3) == 0
            ? toy.tables.back()
            : random_device(random, batch, exchanges, shape.ordered_updates);
    std::optional<Bytes> memory;
    if (random.below(2) == 0) {
      memory =
          Bytes(device.base.value +
                device.per_sample.value *
                    static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(batch) + 1)));
    }
    const bool same_node = i > 0 && !shape.one_link && random.below(3) == 0;
    if (same_node) {
      toy.add_device_on(NodeId(static_cast<std::int64_t>(toy.cluster->nodes.size()) - 1),
                        std::move(device), memory);
    } else {
      toy.add_device(std::move(device), memory);
    }
  }
  const auto add_link = [&](std::vector<NodeId> between) {
    toy.cluster->links.push_back({.between = std::move(between),
                                  .bandwidth = BytesPerSecond(1 + 4 * random.uniform()),
                                  .latency = Seconds(0.2 * random.uniform())});
  };
  add_link({});
  if (!shape.one_link && toy.cluster->nodes.size() > 1) {
    add_link({NodeId(0), NodeId(1)});
    if (random.below(2) == 0) add_link({NodeId(0)});
  }
  const double bytes = 2 * random.uniform();
  const double blocking = random.below(3) == 0 ? 0.3 * random.uniform() : 0.0;
  toy.group = [cluster = toy.cluster.get(), exchanges, bytes,
               blocking](const std::vector<DeviceId>& group) {
    const auto route = cluster::group_route(*cluster, group);
    const auto size = static_cast<double>(group.size());
    double seconds = 0.01 * size;
    if (route) seconds += route->latency.value * size + bytes * size / route->bandwidth.value;
    GroupExchanges times;
    for (std::size_t k = 0; k < exchanges; ++k) {
      times.exchange.push_back(seconds / static_cast<double>(k + 1));
    }
    times.blocking = blocking * size;
    return times;
  };
  if (random.below(4) == 0) toy.problem.min_samples = 2;
  toy.problem.max_samples = batch + 1;
  if (random.below(4) == 0) toy.problem.max_samples = std::max<std::int64_t>(2, batch / 2);
  toy.finish(batch);
  return toy;
}

}  // namespace motley::search
