#include "motley/search/portfolio.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "motley/base/text.h"
#include "motley/search/model_stages/stage_planner.h"
#include "motley/search/split/water_filling.h"
#include "motley/search/spmd/spmd_planner.h"

namespace motley::search {

using plan::PlanOutcome;

namespace {

/// For which stages are looked at where something else fits: their search and the programs by which
/// they are priced grow with the devices.
constexpr std::size_t kMostDevices = 64;

constexpr const char* kFoundBefore =
    "found before its parts were measured, when what follows was said of it; what was found since "
    "takes longer";

/// One device does all, in as few micro-batches as it holds: the first of each kind that could be
/// quicker than what was found, if it does not hold the whole batch at once.
Result<void> consider_alone(const PlannerInputs& inputs, const plan::Problem& problem,
                            PlanOutcome& outcome) {
  using Setting = SplitEvaluator::Setting;
  if (inputs.graph == nullptr) return {};
  std::set<std::pair<const StepCurves*, std::int64_t>> seen;
  for (const DeviceId device : problem.devices) {
    const auto memory = problem.cluster->device(device).room();
    const StepCurves& curves = inputs.evaluator->curves(device, Setting::kAlone);
    const double at_once = curves.end.at(static_cast<double>(problem.global_batch));
    if (!memory || !seen.emplace(&curves, memory->value).second) continue;
    if (outcome.plan && at_once >= outcome.predicted_step.value) continue;
    const auto holds = [&](std::int64_t times) {
      return inputs.evaluator->peak_bytes(device, problem.global_batch / times, Setting::kAlone) <=
             *memory;
    };
    if (holds(1)) continue;  // considered as the best single device
    plan::Plan plan = make_split_plan(problem, {{device}, {problem.global_batch}});
    std::int64_t& times = plan.replicas[0].micro_batches;
    while ((times = next_micro_batches(problem.global_batch, times)) != 0) {
      if (!holds(times)) continue;  // not even one of them
      const auto price = inputs.evaluator->price(plan);
      if (!price) {
        if (price.error().code != "synth.accumulation") return tl::make_unexpected(price.error());
        const std::string& refused = price.error().message;
        if (!outcome.plan &&
            std::find(outcome.why.begin(), outcome.why.end(), refused) == outcome.why.end())
          outcome.why.push_back(refused);
        break;
      }
      ++outcome.considered;
      MOTLEY_ASSIGN(const bool is_taken,
                    take_better(problem, plan, *price,
                                {fmt::format("{} does all, in {} micro-batches of {} samples",
                                             problem.cluster->device(device).name, times,
                                             problem.global_batch / times)},
                                outcome));
      if (is_taken || (outcome.plan && price->step >= outcome.predicted_step)) break;
    }
  }
  return {};
}

/// The best single device, which is a baseline of every answer.
void add_single(const plan::Problem& problem, PlanOutcome& outcome) {
  if (!outcome.best_single.fits) return;
  for (const DeviceId device : problem.devices)
    if (problem.cluster->device(device).name == outcome.best_single.label)
      outcome.alternatives.push_back(
          {make_split_plan(problem, {{device}, {problem.global_batch}}), outcome.best_single.step});
}

/// The best of each family other than the answer, and no more than are worth a trial.
void keep_best(PlanOutcome& outcome) {
  constexpr double kWorthwhile = 2;  // no price is off by more
  std::vector<plan::Alternative> all = std::exchange(outcome.alternatives, {});
  if (!outcome.plan) return;
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.step < b.step; });
  std::set<Family> seen;
  for (plan::Alternative& each : all) {
    const bool is_worthwhile = each.step.value <= kWorthwhile * outcome.predicted_step.value;
    if (!is_worthwhile || each.plan == *outcome.plan || !seen.insert(family_of(each.plan)).second)
      continue;
    outcome.alternatives.push_back(std::move(each));
  }
}

}  // namespace

Family family_of(const plan::Plan& plan) {
  if (plan::has_stages(plan)) return Family::kStages;
  if (plan::splits_operators(plan)) return Family::kSharding;
  return plan::members(plan).size() == 1 ? Family::kAlone : Family::kSplit;
}

Result<void> reconsider_known(const PlannerInputs& inputs, const plan::Problem& problem,
                              PlanOutcome& outcome) {
  for (const auto& [plan, why] : problem.known) {
    if (plan == outcome.plan) continue;
    auto price = inputs.evaluator->price(plan);
    if (!price) continue;  // what it takes is not known any more
    ++outcome.considered;
    std::vector<std::string> said = why;
    if (std::find(why.begin(), why.end(), kFoundBefore) == why.end())
      said.insert(said.begin(), kFoundBefore);
    MOTLEY_RETURN_IF_ERROR(take_better(problem, plan, *price, std::move(said), outcome));
  }
  return {};
}

Result<PlanOutcome> Portfolio::plan(const plan::Problem& problem) const {
  const Deadline deadline = Deadline::after(problem.time_limit);
  MOTLEY_ASSIGN(PlanOutcome outcome, WaterFilling(inputs_).plan(problem));
  outcome.planner = name();
  if (outcome.plan) outcome.alternatives.push_back({*outcome.plan, outcome.predicted_step});
  add_single(problem, outcome);
  const PlanOutcome split = outcome;
  // What stages take and are bounded by spares most of the search for shardings.
  std::optional<Seconds> least;
  const bool are_many = problem.devices.size() > kMostDevices;
  if (!are_many) {
    MOTLEY_ASSIGN(least, consider_stages(inputs_, problem, outcome));
  }
  if (may_shard(problem, inputs_))
    MOTLEY_RETURN_IF_ERROR(consider_sharding(problem, {&split, deadline}, least, outcome));
  MOTLEY_RETURN_IF_ERROR(consider_alone(inputs_, problem, outcome));
  if (are_many && outcome.plan)
    outcome.why.push_back(fmt::format(
        "stages were not considered, as there is a plan and there are more than {} devices: "
        "--planner stages does",
        kMostDevices));
  else if (are_many)
    MOTLEY_RETURN_IF_ERROR(consider_stages(inputs_, problem, outcome));
  MOTLEY_RETURN_IF_ERROR(reconsider_known(inputs_, problem, outcome));
  keep_best(outcome);
  return outcome;
}

Result<void> Portfolio::consider_sharding(const plan::Problem& problem, SpmdStart start,
                                          std::optional<Seconds> least_staged,
                                          PlanOutcome& outcome) const {
  if (outcome.plan != start.split->plan) start.known_step = outcome.predicted_step;
  if (least_staged) start.enough_bound = *least_staged;
  auto sharded = plan_sharding(SpmdMethod::kSpmd, inputs_, problem, start);
  if (!sharded) {
    outcome.why.push_back("no sharding of operators was considered: " + sharded.error().message);
    return {};
  }
  PlanOutcome& other = sharded->outcome;
  if (other.plan) outcome.alternatives.push_back({*other.plan, other.predicted_step});
  const Seconds bound = std::min(other.lower_bound, start.enough_bound);
  other.considered += outcome.considered - start.split->considered;
  const bool is_better =
      other.plan && (!outcome.plan || other.predicted_step < outcome.predicted_step);
  if (!is_better && outcome.plan) {
    if (other.plan)
      outcome.why.push_back(fmt::format(
          "the best sharding of operators found takes {}, which is no gain; none takes less than "
          "{}",
          format_seconds(other.predicted_step), format_seconds(other.lower_bound)));
    outcome.considered = other.considered;
  } else {
    // Why there are no stages, too.
    if (!other.plan || outcome.plan == start.split->plan)
      other.why.insert(other.why.end(),
                       outcome.why.begin() + static_cast<std::ptrdiff_t>(start.split->why.size()),
                       outcome.why.end());
    other.alternatives = std::move(outcome.alternatives);
    outcome = std::move(other);
  }
  outcome.lower_bound = bound;
  if (!outcome.plan) return {};
  return set_bound(std::min(bound, outcome.predicted_step), sharded->was_ended, outcome);
}

}  // namespace motley::search
