#pragma once

#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/plan/planner.h"

namespace motley::search {

/// A region of several devices that runs the whole graph, and the peak memory of each.
struct RegionChoice {
  plan::Region region;
  std::vector<Bytes> peaks;  ///< by device, what PyTorch holds beside the tensors included
  std::int64_t micro_batches = 1, turns = 1;
};

/// Draws by the problem's seed: two or more of its devices in any order, a share from 0 to 8 for
/// each, not all 0, in how many micro-batches a step is done (often one, at most four; how many of
/// them take turns), how every
/// operator is split (draw_sharding), and how every kind of exchange is carried out. Draws again,
/// at most 20 times, what does not fit into the devices' memory. Empty: nothing fitted, or the
/// graph does not run at the global batch; `why` then has the arithmetic, else what was drawn.
/// Needs two devices.
Result<std::optional<RegionChoice>> draw_region(const plan::Problem& problem,
                                                const graph::Graph& graph,
                                                std::vector<std::string>& why);

/// "a:0 needs 17.9 GiB, has 14.8 GiB" of each of the devices that lacks memory.
std::vector<std::string> find_lacking(const cluster::Cluster& cluster,
                                      const std::vector<DeviceId>& devices,
                                      const std::vector<Bytes>& peaks);

/// The problem's plan of one region.
plan::Plan make_region_plan(const plan::Problem& problem, const plan::Region& region,
                            std::int64_t micro_batches = 1, std::int64_t turns = 1);

}  // namespace motley::search
