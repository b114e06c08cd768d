#include "motley/search/model_stages/stage_planner.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "motley/search/split/water_filling.h"
#include "motley/search/spmd/spmd_planner.h"
#include "motley/search/stages/costs/merged_layers.h"

namespace motley::search {

namespace {

/// Plans of a round that are priced by their programs: by their times the best is mostly the first.
constexpr std::size_t kMostPrograms = 4;
/// Of others beside the best, in its time.
constexpr double kWorthPricing = 1.3;

class StagePlanning {
 public:
  StagePlanning(const PlannerInputs& inputs, const plan::Problem& problem, ModelStageCosts& costs,
                const StageFinder& find, plan::PlanOutcome& outcome)
      : problem_(problem),
        costs_(costs),
        find_(find),
        outcome_(outcome),
        pricing_(inputs, problem, costs, outcome) {}

  Result<void> run() {
    MOTLEY_RETURN_IF_ERROR(note_bound());
    MOTLEY_RETURN_IF_ERROR(run_passes());
    if (costs_.offer_mixed()) {
      pricing_.forget_taken();
      MOTLEY_RETURN_IF_ERROR(run_passes());
    }
    const std::set<std::string>& refused = pricing_.refused();
    if (!pricing_.is_best())
      outcome_.why.insert(outcome_.why.end(), refused.begin(), refused.end());
    std::stable_sort(
        outcome_.runner_ups.begin(), outcome_.runner_ups.end(),
        [](const plan::RunnerUp& a, const plan::RunnerUp& b) { return a.step < b.step; });
    return {};
  }

 private:
  /// However it is cut and shared: an operator's work is on some devices.
  Result<void> note_bound() {
    const Seconds least = costs_.least_step();
    if (!outcome_.plan) {
      outcome_.lower_bound = least;
      return {};
    }
    // What was the best of splits may not be that of these plans, too.
    const bool was_ended = outcome_.reason == plan::Reason::kLimit;
    return set_bound(std::min(outcome_.lower_bound, least), was_ended, outcome_);
  }

  /// Among the units that are offered.
  Result<void> run_passes() {
    pricing_.assume({});
    std::map<std::string_view, std::size_t> asked;  // by pass: how many plans that fit it knows
    for (const PlanningPass& pass : planning_passes()) {
      if (pass.name == find_.without || (pass.is_refining && find_.cuts != StageCuts::kRefined))
        continue;
      if (pass.improve != nullptr)
        pricing_.assume({lacks_memory(outcome_) ? Recompute::kAll : Recompute::kNothing});
      const PassInput input{problem_,         costs_,           outcome_,
                            pricing_.sums(),  find_.cuts,       pricing_.taken(),
                            asked[pass.name], pricing_.apart(), pricing_.is_best()};
      if (pass.search != nullptr) {
        if (const auto request = pass.search(input)) MOTLEY_RETURN_IF_ERROR(search(*request));
      } else {
        for (const StageCandidate& made : pass.improve(input))
          MOTLEY_RETURN_IF_ERROR(consider(made, pass.is_counted));
      }
      asked[pass.name] = pricing_.taken().size();
    }
    return {};
  }

  Result<void> consider(const StageCandidate& made, bool is_counted) {
    if (made.expected && *made.expected >= outcome_.predicted_step) return {};
    return made.plan ? pricing_.take_if_faster({made.found, *made.plan}, is_counted)
                     : pricing_.fit(made.found);
  }

  Result<void> search(const StageRequest& request) {
    pricing_.assume(request.assumption);
    if (request.assumption.shares_states) costs_.restore_memory();
    for (int round = 0; round < request.rounds; ++round) {
      MOTLEY_ASSIGN(const StageOutcome found, find_between(request.cuts));
      if (!found.best) {
        for (const std::string& why : found.why)
          if (!outcome_.plan && round == 0) pricing_.refused().insert("in stages: " + why);
        break;
      }
      pricing_.repair().forget_noted();
      // Those of further searches last, so that the others are considered as without them.
      for (const bool further : {false, true})
        MOTLEY_RETURN_IF_ERROR(consider_best(found, further, round + 1 == request.rounds));
      if (!pricing_.repair().take_noted(outcome_.plan.has_value())) break;
    }
    return {};
  }

  /// Of the plans that a further search found, or the first one: the best, and those near to it, or
  /// all. Interleaved ones come last, so that the others are considered as without them.
  Result<void> consider_best(const StageOutcome& found, bool further, bool all) {
    std::vector<const PricedStagePlan*> plans;  // the best first
    for (std::size_t i = 0; i <= found.runner_ups.size(); ++i)
      if (const auto& each = i == 0 ? *found.best : found.runner_ups[i - 1];
          each.is_further == further)
        plans.push_back(&each);
    for (const bool interleaved : {false, true}) {
      std::size_t tried = 0;
      for (const PricedStagePlan* each : plans) {
        if (is_interleaved(each->plan) != interleaved || tried++ >= kMostPrograms) continue;
        const bool is_first = !interleaved && tried == 1;
        if (is_first || all || each->price.step <= plans.front()->price.step * kWorthPricing)
          MOTLEY_RETURN_IF_ERROR(pricing_.consider(*each));
      }
    }
    return {};
  }

  /// Plans whose cuts are some of these, which are of pieces.
  Result<StageOutcome> find_between(const std::vector<std::size_t>& cuts) const {
    const MergedLayers layers(costs_, cuts, MergedLayers::Tied::kOnce);
    MOTLEY_ASSIGN(
        StageOutcome found,
        find_.find({.costs = &layers, .global_batch = problem_.global_batch, .is_bounded = false},
                   costs_.pieces()));
    const auto restore = [&](PricedStagePlan& priced) {
      for (StageReplica& replica : priced.plan.replicas)
        for (PlannedStage& stage : replica.stages) {
          stage.first = cuts[stage.first];
          stage.end = cuts[stage.end];
        }
    };
    if (found.best) restore(*found.best);
    for (PricedStagePlan& other : found.runner_ups) restore(other);
    return found;
  }

  const plan::Problem& problem_;
  ModelStageCosts& costs_;
  const StageFinder& find_;
  plan::PlanOutcome& outcome_;
  StagePricing pricing_;
};

}  // namespace

Result<std::optional<Seconds>> consider_stages(const PlannerInputs& inputs,
                                               const plan::Problem& problem,
                                               plan::PlanOutcome& outcome,
                                               const StageFinder& find) {
  if (inputs.graph == nullptr || inputs.costs == nullptr) return std::nullopt;
  // One device may do its forward pass again; what fits in one micro-batch needs nothing.
  if (problem.devices.size() < 2 && outcome.plan && outcome.plan->replicas[0].micro_batches == 1)
    return std::nullopt;
  const auto costs = ModelStageCosts::make(inputs, problem, find.kinds);
  if (!costs) return std::nullopt;
  MOTLEY_RETURN_IF_ERROR(StagePlanning(inputs, problem, **costs, find, outcome).run());
  return (*costs)->least_step();
}

Result<plan::PlanOutcome> StagePlanner::plan(const plan::Problem& problem) const {
  MOTLEY_ASSIGN(plan::PlanOutcome outcome, WaterFilling(inputs_).plan(problem));
  outcome.planner = name();
  MOTLEY_RETURN_IF_ERROR(consider_stages(inputs_, problem, outcome));
  return outcome;
}

}  // namespace motley::search
