#include "motley/search/stages/stage_lag.h"

#include <algorithm>
#include <cmath>

#include "motley/search/stages/costs/unit_hops.h"

namespace motley::search {

double find_lag(const StageSums& sums, const StageReplica& replica, std::size_t stage) {
  const StageCosts& costs = sums.costs();
  const PlannedStage& here = replica.stages[stage];
  const StageUnit& to = costs.units()[here.unit];
  const int host = costs.pools()[to.pool()].first_host + here.host;
  double longest = 0;
  for (const std::size_t other : {stage - 1, stage + 1}) {
    if (other >= replica.stages.size()) continue;
    const PlannedStage& there = replica.stages[other];
    const StageUnit& from = costs.units()[there.unit];
    const bool is_same_host = costs.pools()[from.pool()].first_host + there.host == host;
    if (from.parts == to.parts && is_same_host && there.slot == here.slot &&
        there.more_slots == here.more_slots)
      continue;
    const PlannedStage& earlier = other < stage ? there : here;
    const Bytes bytes = sums.output(earlier.unit, earlier.end) * replica.micro_batch;
    const auto hop =
        find_hop(costs, from, to, is_same_host ? HopReach::kSameHost : HopReach::kOtherHost, bytes);
    if (hop)
      longest =
          std::max(longest, hop->delay.value + static_cast<double>(bytes.value) / hop->rate.value);
  }
  const double work = sums.work(here.unit, replica.micro_batch).pass(here.first, here.end);
  return std::round(100 * longest / work) / 100;
}

void scale_speeds(double parts, plan::Plan& plan) {
  double fastest = 0;
  for (const plan::Replica& replica : plan.replicas)
    for (const plan::Region& region : replica.regions) fastest = std::max(fastest, region.speed);
  for (plan::Replica& replica : plan.replicas)
    for (plan::Region& region : replica.regions)
      region.speed = replica.regions.size() > 1
                         ? std::max(1 / parts, std::round(parts * region.speed / fastest) / parts)
                         : 1;
}

}  // namespace motley::search
