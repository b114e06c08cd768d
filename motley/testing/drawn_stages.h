#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "motley/base/random.h"
#include "motley/graph/graph.h"
#include "motley/plan/plan.h"

namespace motley::synth {

/// Draws plans of replicas cut into regions of one device each, in any way: one to three replicas
/// of one to three micro-batches, in one to four regions by ranges of the graph or operator by
/// operator, on one to three devices. Recomputing, late weight gradients and regathering come
/// at random. Same seed, same plan; the graph must outlive it.
class StagesDraw {
 public:
  StagesDraw(const graph::Graph& graph, std::uint64_t seed) : graph_(graph), random_(seed) {}

  plan::Plan plan() {
    plan::Plan made;
    made.model_hash = "model";
    const std::size_t replicas = 1 + below(3);
    for (std::size_t r = 0; r < replicas; ++r) {
      made.replicas.push_back(replica());
      made.global_batch += made.replicas.back().samples;
    }
    return made;
  }

  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(random_.below(bound)); }

 private:
  plan::Replica replica() {
    plan::Replica made;
    made.micro_batches = static_cast<std::int64_t>(1 + below(3));
    made.samples = made.micro_batches + static_cast<std::int64_t>(below(3));
    const std::size_t regions = 1 + below(4), devices = 1 + below(3);
    const std::vector<std::size_t> of = assignment(regions);
    for (std::size_t g = 0; g < regions; ++g) {
      plan::Region region{{DeviceId(next_device_ + static_cast<std::int64_t>(below(devices)))},
                          {1.0}};
      for (std::size_t i = 0; i < of.size(); ++i)
        if (of[i] == g) plan::append(region.covers, static_cast<std::int64_t>(i));
      if (region.covers.empty()) continue;
      decorate(region);
      made.regions.push_back(std::move(region));
    }
    if (made.regions.size() == 1) made.regions.front().covers.clear();
    next_device_ += static_cast<std::int64_t>(devices);
    return made;
  }

  /// Assigns operators to regions: consecutive ranges, or at random.
  std::vector<std::size_t> assignment(std::size_t regions) {
    std::vector<std::size_t> of(graph_.ops.size());
    const bool is_cut_anywhere = below(2) == 0;
    std::size_t at = 0;
    for (std::size_t& each : of)
      each = at = is_cut_anywhere || below(of.size() / regions + 1) == 0 ? below(regions) : at;
    return of;
  }

  void decorate(plan::Region& region) {
    if (below(2) == 0) region.ahead = static_cast<std::int64_t>(1 + below(3));
    region.late_weights = below(2) == 0;
    region.speed = 1 + static_cast<double>(below(3));
    region.lag = static_cast<double>(below(3)) / 2;
    const bool does_again = below(3) == 0;
    for (const plan::OpRange& range : region.covers)
      for (std::int64_t op = range.first; does_again && op < range.end; ++op)
        if (below(2) == 0) plan::append(region.recomputes, op);
    for (const graph::Value& value : graph_.values)
      if (value.role == graph::ValueRole::kParameter && below(4) == 0)
        region.parameters.push_back({value.name, {}, true});
  }

  const graph::Graph& graph_;
  SplitMix64 random_;
  std::int64_t next_device_ = 0;
};

}  // namespace motley::synth
