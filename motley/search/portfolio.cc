#include "motley/search/portfolio.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "motley/base/text.h"
#include "motley/search/split/water_filling.h"
#include "motley/search/spmd/spmd_planner.h"

namespace motley::search {

using plan::PlanOutcome;

namespace {

constexpr const char* kFoundBefore =
    "found before its parts were measured, when what follows was said of it; what was found since "
    "takes longer";

bool fits(const plan::Problem& problem, const std::vector<std::pair<DeviceId, Bytes>>& peaks) {
  return std::all_of(peaks.begin(), peaks.end(), [&](const auto& peak) {
    const auto& memory = problem.cluster->device(peak.first).memory;
    return !memory || peak.second <= *memory;
  });
}

}  // namespace

Result<void> reconsider_known(const PlannerInputs& inputs, const plan::Problem& problem,
                              PlanOutcome& outcome) {
  for (const auto& [plan, why] : problem.known) {
    if (plan == outcome.plan) continue;
    auto price = inputs.evaluator->price(plan);
    if (!price) continue;  // what it takes is not known any more
    ++outcome.considered;
    std::vector<std::pair<DeviceId, Bytes>> peaks;
    std::vector<DeviceId> used;
    for (const plan::Member& member : plan::members(plan)) {
      peaks.emplace_back(member.device, price->peaks[used.size()]);
      used.push_back(member.device);
    }
    if ((outcome.plan && price->step >= outcome.predicted_step) || !fits(problem, peaks)) continue;
    outcome.plan = plan;
    outcome.predicted_step = price->step;
    outcome.rounding = price->rounding;
    outcome.peak = std::move(peaks);
    outcome.idle = plan::idle_devices(problem, used);
    outcome.why = why;
    if (std::find(why.begin(), why.end(), kFoundBefore) == why.end())
      outcome.why.insert(outcome.why.begin(), kFoundBefore);
    const bool was_ended = outcome.reason == plan::Reason::kLimit;
    MOTLEY_RETURN_IF_ERROR(set_bound(outcome.lower_bound, was_ended, outcome));
  }
  return {};
}

Result<PlanOutcome> Portfolio::plan(const plan::Problem& problem) const {
  MOTLEY_ASSIGN(PlanOutcome outcome, search(problem));
  MOTLEY_RETURN_IF_ERROR(reconsider_known(inputs_, problem, outcome));
  return outcome;
}

Result<PlanOutcome> Portfolio::search(const plan::Problem& problem) const {
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
