#include "motley/search/restricted_planner.h"

#include <fmt/format.h>

#include "motley/search/split/fixed_planners.h"
#include "motley/search/stage_planner.h"

namespace motley::search {
namespace {

/// The equal split's baselines and what it lacks, without its plan.
void forget_plan(const plan::Problem& problem, plan::PlanOutcome& outcome) {
  if (outcome.plan) outcome.why.clear();
  outcome.plan.reset();
  outcome.reason = plan::Reason::kInfeasible;
  outcome.predicted_step = outcome.rounding = outcome.lower_bound = Seconds(0);
  outcome.peak.clear();
  outcome.idle = problem.devices;
}

}  // namespace

Result<plan::PlanOutcome> RestrictedPlanner::plan(const plan::Problem& problem) const {
  MOTLEY_ASSIGN(plan::PlanOutcome outcome, EqualPlanner(inputs_).plan(problem));
  outcome.planner = name();
  if (inputs_.graph == nullptr || inputs_.costs == nullptr || problem.devices.size() < 2)
    return outcome;
  forget_plan(problem, outcome);
  MOTLEY_RETURN_IF_ERROR(consider_stages(
      inputs_, problem, outcome,
      [&](const StageQuestion& question) { return find_restricted(space_, question); }));
  outcome.why.push_back(fmt::format("{} of {} {}", outcome.plan ? "the best found" : "no plan",
                                    stage_space_name(space_).title,
                                    outcome.plan ? "alone" : "fits"));
  return outcome;
}

}  // namespace motley::search
