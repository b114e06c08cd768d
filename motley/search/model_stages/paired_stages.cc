#include "motley/search/model_stages/paired_stages.h"

#include <algorithm>

namespace motley::search {
namespace {

constexpr double kWorthPairing = 0.01;  // of a step

}  // namespace

std::vector<WaitingStage> find_waiting(const ModelStageCosts& costs, const PricedStagePlan& found) {
  std::vector<WaitingStage> waiting;
  for (std::size_t r = 0; r < found.plan.replicas.size(); ++r) {
    const StageReplica& replica = found.plan.replicas[r];
    if (micro_batch_sizes(replica).size() < 2) continue;
    for (std::size_t s = 0; s < replica.stages.size(); ++s) {
      const std::size_t unit = replica.stages[s].unit;
      const Seconds waits = found.price.spans[r][s].compute * costs.times().waiting(unit);
      if (costs.units()[unit].degree() > 1 && waits > found.price.step * kWorthPairing)
        waiting.push_back({r, s});
    }
  }
  return waiting;
}

plan::Plan pair_stages(plan::Plan plan, const std::vector<WaitingStage>& stages, MoreAhead more) {
  for (const auto& [r, s] : stages) {
    plan::Replica& replica = plan.replicas[r];
    plan::Region& region = replica.regions[s];
    region.turns = 2;
    const auto behind = static_cast<std::int64_t>(replica.regions.size() - 1 - s);
    std::int64_t ahead = region.ahead > 0 ? region.ahead : behind + 1;
    if (more != MoreAhead::kNothing) ahead += behind;
    if (more == MoreAhead::kBehindAndOne) ++ahead;
    region.ahead = std::min(replica.micro_batches, ahead);
  }
  return plan;
}

}  // namespace motley::search
