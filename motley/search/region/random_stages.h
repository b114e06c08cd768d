#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/graph/graph.h"
#include "motley/plan/plan.h"
#include "motley/plan/planner.h"

namespace motley::search {

struct StageRange {
  const cluster::Cluster* cluster = nullptr;  ///< for device names
  std::vector<DeviceId> devices;              ///< two or more
  std::int64_t global_batch = 0;
  std::int64_t min_samples = 1;  ///< the model's least batch
  plan::BatchNormSpan batch_norm_span = plan::BatchNormSpan::kStep;
};

struct DrawnStages {
  std::vector<plan::Replica> replicas;
  std::vector<plan::Owners> owners;
  bool operator==(const DrawnStages&) const = default;
};

/// Draws replicas cut into regions: their number, devices, samples and micro-batches. Operators are
/// assigned by ranges of the graph, by modules (a pipeline: backward operators go with the forward
/// pass of their module), or one by one. Regions have one device, or several that split operators
/// at random. Also draws micro-batches in flight, recomputed operators, delayed weight gradients,
/// paired tasks of two micro-batches, and half of the time shares of states, 0 to 3 per device.
/// Devices may be in several regions of a replica. A model that needs all samples at once stays one
/// replica and one micro-batch. Deterministic by seed; every lowering can occur.
DrawnStages draw_stages(const graph::Graph& graph, const StageRange& range, std::uint64_t seed);

/// A drawn plan and the peak memory of its devices (plan::members), including PyTorch's own.
struct StagesChoice {
  plan::Plan plan;
  std::vector<Bytes> peaks;
};

/// Draws with the problem's seed, again, at most 20 times, if the plan does not fit in memory.
/// Returns empty if none fits; then `why` has the last arithmetic, otherwise a description. Needs
/// two devices.
Result<std::optional<StagesChoice>> draw_fitting_stages(const plan::Problem& problem,
                                                        const graph::Graph& graph,
                                                        std::vector<std::string>& why);

}  // namespace motley::search
