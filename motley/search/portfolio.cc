#include "motley/search/portfolio.h"

#include <fmt/format.h>

#include <utility>

#include "motley/base/text.h"
#include "motley/search/split/water_filling.h"
#include "motley/search/spmd/spmd_planner.h"

namespace motley::search {

using plan::PlanOutcome;

Result<PlanOutcome> Portfolio::plan(const plan::Problem& problem) const {
  const Deadline deadline = Deadline::after(problem.time_limit);
  MOTLEY_ASSIGN(PlanOutcome split, WaterFilling(inputs_).plan(problem));
  split.planner = name();
  if (!may_shard(problem, inputs_)) return split;
  auto sharded = plan_sharding(SpmdMethod::kSpmd, inputs_, problem, {&split, deadline});
  if (!sharded) {
    split.why.push_back("no sharding of operators was considered: " + sharded.error().message);
    return split;
  }
  PlanOutcome& other = sharded->outcome;
  if (!split.plan) return std::move(other);
  if (other.plan && other.predicted_step < split.predicted_step) return std::move(other);
  if (other.plan)
    split.why.push_back(fmt::format(
        "the best sharding of operators found takes {}, which is no gain; none takes less than {}",
        format_seconds(other.predicted_step), format_seconds(other.lower_bound)));
  split.considered = other.considered;
  MOTLEY_RETURN_IF_ERROR(set_bound(other.lower_bound, sharded->was_ended, split));
  return split;
}

}  // namespace motley::search
