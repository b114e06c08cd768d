#pragma once

#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/plan/planner.h"

namespace motley::search {

/// A region of several devices that runs the whole graph.
struct RegionChoice {
  plan::Region region;
  std::vector<Bytes> peaks;  ///< by device, including PyTorch's own memory
  std::int64_t micro_batches = 1, turns = 1;
};

/// Draws a region with the problem's seed: two or more of its devices in any order, shares from 0
/// to 8, not all 0, the number of micro-batches (often one, at most four) and of interleaved ones,
/// the split of every operator (draw_sharding) and the method of every kind of exchange. Draws
/// again, at most 20 times, if it does not fit in memory. Returns empty if none fits or the graph
/// does not run at the global batch; then `why` has the arithmetic, otherwise a description. Needs
/// two devices.
Result<std::optional<RegionChoice>> draw_region(const plan::Problem& problem,
                                                const graph::Graph& graph,
                                                std::vector<std::string>& why);

/// Returns "a:0 needs 17.9 GiB, has 14.8 GiB" for each device that lacks memory.
std::vector<std::string> find_lacking(const cluster::Cluster& cluster,
                                      const std::vector<DeviceId>& devices,
                                      const std::vector<Bytes>& peaks);

plan::Plan make_region_plan(const plan::Problem& problem, const plan::Region& region,
                            std::int64_t micro_batches = 1, std::int64_t turns = 1);

}  // namespace motley::search
