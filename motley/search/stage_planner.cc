#include "motley/search/stage_planner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "motley/base/text.h"
#include "motley/search/model_stage_costs.h"
#include "motley/search/portfolio.h"
#include "motley/search/split/water_filling.h"
#include "motley/search/spmd/spmd_planner.h"
#include "motley/search/stages/stage_search.h"

namespace motley::search {

namespace {

constexpr int kMemoryRounds = 4;          // of planning again with less memory
constexpr std::size_t kMostPrograms = 4;  // plans of a round, by their programs
/// What several devices exchange in one micro-batch alone is partly hidden beside others.
constexpr double kHiddenAtMost = 0.05;  // of the step
/// By how much quicker what lacks memory has to be, for which it is planned again with less.
constexpr double kWorthPlanningAgain = 0.02;

class StagePlanning {
 public:
  StagePlanning(const PlannerInputs& inputs, const plan::Problem& problem, ModelStageCosts& costs,
                plan::PlanOutcome& outcome)
      : inputs_(inputs), problem_(problem), costs_(costs), outcome_(outcome) {}

  Result<void> run() {
    for (int round = 0; round < kMemoryRounds; ++round) {
      MOTLEY_ASSIGN(const StageOutcome found,
                    find_stage_plan({&costs_, problem_.global_batch, {}, false}));
      if (round == 0) MOTLEY_RETURN_IF_ERROR(note_bound());
      if (!found.best) {
        for (const std::string& why : found.why)
          if (!outcome_.plan && round == 0) outcome_.why.push_back("in stages: " + why);
        break;
      }
      lacking_.clear();
      is_worth_more_ = false;
      std::vector<const PricedStagePlan*> plans = {&*found.best};
      for (const PricedStagePlan& each : found.runner_ups) plans.push_back(&each);
      plans.resize(std::min(plans.size(), kMostPrograms));
      // Where one lacks memory those behind it wait for what is planned with less.
      for (const PricedStagePlan* each : plans)
        if (lacking_.empty())
          MOTLEY_RETURN_IF_ERROR(consider(*each));
        else
          waiting_.push_back(*each);
      if (lacking_.empty() || (outcome_.plan && !is_worth_more_)) break;
      for (const auto& [pool, part] : lacking_) costs_.take_memory(pool, part);
    }
    std::stable_sort(waiting_.begin(), waiting_.end(),
                     [](const PricedStagePlan& a, const PricedStagePlan& b) {
                       return a.price.step < b.price.step;
                     });
    for (const PricedStagePlan& each : waiting_) MOTLEY_RETURN_IF_ERROR(consider(each));
    if (!outcome_.plan) outcome_.why.insert(outcome_.why.end(), refused_.begin(), refused_.end());
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

  plan::Plan translate(const PricedStagePlan& found) const {
    plan::Plan plan = plan::blank_plan(problem_);
    for (std::size_t r = 0; r < found.plan.replicas.size(); ++r) {
      const StageReplica& replica = found.plan.replicas[r];
      plan::Replica made;
      made.samples = replica.samples;
      made.micro_batches = static_cast<std::int64_t>(micro_batch_sizes(replica).size());
      for (std::size_t s = 0; s < replica.stages.size(); ++s) {
        const PlannedStage& stage = replica.stages[s];
        plan::Region region = costs_.region(stage);
        if (replica.stages.size() > 1) region.ahead = found.price.spans[r][s].in_flight;
        made.regions.push_back(std::move(region));
      }
      plan.replicas.push_back(std::move(made));
    }
    return plan;
  }

  /// Will it take longer than what is known? What several devices exchange may be hidden in part.
  bool is_hopeless(const PricedStagePlan& found) const {
    if (!outcome_.plan) return false;
    double all = 0, shared = 0;  // devices
    for (const StageReplica& replica : found.plan.replicas)
      for (const PlannedStage& stage : replica.stages) {
        const int degree = costs_.units()[stage.unit].degree;
        all += degree;
        if (degree > 1) shared += degree;
      }
    return found.price.step >= outcome_.predicted_step * (1 + kHiddenAtMost * shared / all);
  }

  /// Prices a plan by its program, if it is worth it and was not priced before, and takes it if it
  /// fits and is the best; else notes what it lacks.
  Result<void> consider(const PricedStagePlan& found) {
    if (is_hopeless(found)) return {};
    const plan::Plan plan = translate(found);
    if (std::find(seen_.begin(), seen_.end(), plan) != seen_.end()) return {};
    seen_.push_back(plan);
    const auto price = inputs_.evaluator->price(plan);
    if (!price) {
      // Not every graph can be cut into micro-batches, nor what is split so for each number of
      // them.
      const std::set<std::string> codes = {"synth.accumulation", "synth.unsupported", "plan.stale"};
      if (!codes.contains(price.error().code)) return tl::make_unexpected(price.error());
      refused_.insert("no stages: " + price.error().message);
      return {};
    }
    ++outcome_.considered;
    const std::vector<plan::Member> members = plan::members(plan);
    bool fits = true;
    for (std::size_t rank = 0; rank < members.size(); ++rank) {
      const auto& memory = problem_.cluster->device(members[rank].device).memory;
      if (!memory || price->peaks[rank] <= *memory) continue;
      fits = false;
      const std::size_t pool = pool_of(found.plan, members[rank].device);
      const double part =
          static_cast<double>(memory->value) / static_cast<double>(price->peaks[rank].value) * 0.98;
      const auto [known, is_new] = lacking_.try_emplace(pool, part);
      known->second = std::min(known->second, part);
    }
    if (!fits) {
      const double known = outcome_.plan ? outcome_.predicted_step.value : INFINITY;
      is_worth_more_ = is_worth_more_ || price->step.value < known * (1 - kWorthPlanningAgain);
      return {};
    }
    if (outcome_.plan && price->step >= outcome_.predicted_step) {
      if (plan::has_stages(*outcome_.plan) && plan != *outcome_.plan)
        outcome_.runner_ups.push_back({shape_text(plan), price->step});
      return {};
    }
    outcome_.lower_bound = std::min(outcome_.lower_bound, price->step);
    if (outcome_.plan && plan::has_stages(*outcome_.plan))
      outcome_.runner_ups.insert(outcome_.runner_ups.begin(),
                                 {shape_text(*outcome_.plan), outcome_.predicted_step});
    MOTLEY_RETURN_IF_ERROR(take_better(problem_, plan, *price, {}, outcome_));
    outcome_.stage_names = name_stages(found.plan);
    return {};
  }

  std::size_t pool_of(const StagePlan& plan, DeviceId device) const {
    for (const StageReplica& replica : plan.replicas)
      for (const PlannedStage& stage : replica.stages) {
        const std::vector<DeviceId> devices = costs_.devices(stage);
        if (std::find(devices.begin(), devices.end(), device) != devices.end())
          return costs_.units()[stage.unit].pool;
      }
    return 0;
  }

  /// "2 replicas of 3 and 1 stages".
  static std::string shape_text(const plan::Plan& plan) {
    std::vector<std::size_t> depths;
    for (const plan::Replica& replica : plan.replicas) depths.push_back(replica.regions.size());
    std::sort(depths.rbegin(), depths.rend());
    const std::size_t count = depths.size();
    depths.erase(std::unique(depths.begin(), depths.end()), depths.end());
    return fmt::format("{} replica{} of {} stage{}", count, count == 1 ? "" : "s",
                       fmt::join(depths, " and "),
                       depths == std::vector<std::size_t>{1} ? "" : "s");
  }

  std::vector<std::vector<std::string>> name_stages(const StagePlan& plan) const {
    const std::vector<std::string>& names = costs_.chain().names;
    std::vector<std::vector<std::string>> found;
    for (const StageReplica& replica : plan.replicas) {
      std::vector<std::string>& stages = found.emplace_back();
      for (const PlannedStage& stage : replica.stages)
        stages.push_back(stage.end - stage.first == 1
                             ? names[stage.first]
                             : names[stage.first] + " to " + names[stage.end - 1]);
    }
    return found;
  }

  const PlannerInputs& inputs_;
  const plan::Problem& problem_;
  ModelStageCosts& costs_;
  plan::PlanOutcome& outcome_;
  std::vector<PricedStagePlan> waiting_;   // not yet priced by their programs
  std::vector<plan::Plan> seen_;           // that were
  std::set<std::string> refused_;          // why plans cannot be run
  bool is_worth_more_ = false;             // does something lack memory that is quicker?
  std::map<std::size_t, double> lacking_;  // pool -> the part of its memory that a plan may use
};

}  // namespace

Result<std::optional<Seconds>> consider_stages(const PlannerInputs& inputs,
                                               const plan::Problem& problem,
                                               plan::PlanOutcome& outcome) {
  if (inputs.graph == nullptr || inputs.costs == nullptr || problem.devices.size() < 2)
    return std::nullopt;
  const auto costs = ModelStageCosts::make(inputs, problem);
  if (!costs) return std::nullopt;
  MOTLEY_RETURN_IF_ERROR(StagePlanning(inputs, problem, **costs, outcome).run());
  return (*costs)->least_step();
}

Result<plan::PlanOutcome> StagePlanner::plan(const plan::Problem& problem) const {
  MOTLEY_ASSIGN(plan::PlanOutcome outcome, WaterFilling(inputs_).plan(problem));
  outcome.planner = name();
  MOTLEY_RETURN_IF_ERROR(consider_stages(inputs_, problem, outcome));
  return outcome;
}

}  // namespace motley::search
