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

/// What may be drawn.
struct StageRange {
  const cluster::Cluster* cluster = nullptr;  ///< for names of devices
  std::vector<DeviceId> devices;              ///< two or more
  std::int64_t global_batch = 0;
  std::int64_t min_samples = 1;  ///< the least batch of the model
  plan::BatchNormSpan batch_norm_span = plan::BatchNormSpan::kStep;
};

struct DrawnStages {
  std::vector<plan::Replica> replicas;
  std::map<DeviceId, double> state_shares;
  bool operator==(const DrawnStages&) const = default;
};

/// Draws replicas that are cut into regions: how many, their devices, samples and micro-batches;
/// each replica's operators by stretches of the graph, by modules (a pipeline: what belongs to the
/// backward pass goes with the forward pass of its module), or one by one; regions of one device or
/// of several that split operators at random; how many micro-batches may be under
/// way; which operators are done again; whether gradients of weights are done late, and tasks of
/// two micro-batches together; and half of the
/// time shares of states, 0 to 3 of each device. Devices may
/// be in several regions of a replica. A model that needs all samples at once stays one replica and
/// one micro-batch. Same seed, same result; everything that lowering has can come.
DrawnStages draw_stages(const graph::Graph& graph, const StageRange& range, std::uint64_t seed);

/// A drawn plan and the peak memory of each of its devices (plan::members), what PyTorch holds
/// included.
struct StagesChoice {
  plan::Plan plan;
  std::vector<Bytes> peaks;
};

/// Draws by the problem's seed, again, at most 20 times, what does not fit into the devices'
/// memory. Empty: nothing fitted; `why` then has the arithmetic of the last, else what was drawn.
/// Needs two devices.
Result<std::optional<StagesChoice>> draw_fitting_stages(const plan::Problem& problem,
                                                        const graph::Graph& graph,
                                                        std::vector<std::string>& why);

}  // namespace motley::search
