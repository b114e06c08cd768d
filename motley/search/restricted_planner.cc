#include "motley/search/restricted_planner.h"

#include <fmt/format.h>

#include "motley/search/split/fixed_planners.h"
#include "motley/search/stage_planner.h"

namespace motley::search {
Result<plan::PlanOutcome> find_baselines(const PlannerInputs& inputs,
                                         const plan::Problem& problem) {
  MOTLEY_ASSIGN(plan::PlanOutcome outcome, EqualPlanner(inputs).plan(problem));
  if (outcome.plan) outcome.why.clear();
  outcome.plan.reset();
  outcome.reason = plan::Reason::kInfeasible;
  outcome.predicted_step = outcome.rounding = outcome.lower_bound = Seconds(0);
  outcome.peak.clear();
  outcome.idle = problem.devices;
  return outcome;
}

Result<plan::PlanOutcome> RestrictedPlanner::plan(const plan::Problem& problem) const {
  if (inputs_.graph == nullptr || inputs_.costs == nullptr || problem.devices.size() < 2) {
    MOTLEY_ASSIGN(plan::PlanOutcome outcome, EqualPlanner(inputs_).plan(problem));
    outcome.planner = name();
    return outcome;
  }
  MOTLEY_ASSIGN(plan::PlanOutcome outcome, find_baselines(inputs_, problem));
  outcome.planner = name();
  MOTLEY_RETURN_IF_ERROR(consider_stages(inputs_, problem, outcome,
                                         {StageCuts::kAtLayers, UnitKinds::kAlike,
                                          [&](const StageQuestion& question, const FinerLayers&) {
                                            return find_restricted(space_, question);
                                          }}));
  outcome.why.push_back(fmt::format("{} of {} {}", outcome.plan ? "the best found" : "no plan",
                                    stage_space_name(space_).title,
                                    outcome.plan ? "alone" : "fits"));
  return outcome;
}

}  // namespace motley::search
