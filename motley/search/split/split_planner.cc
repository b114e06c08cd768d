#include "motley/search/split/split_planner.h"

#include <fmt/format.h>

#include <algorithm>

#include "motley/base/text.h"
#include "motley/graph/rules/without_rule.h"
#include "motley/plan/shares.h"
#include "motley/search/split/explain.h"

namespace motley::search {
namespace {

using plan::Baseline;
using plan::PlanOutcome;
using plan::Problem;
using plan::Reason;
using Setting = SplitEvaluator::Setting;

/// Returns the fastest device alone, preferring those that fit.
DeviceId find_best_single(const SplitSpace& space) {
  const DeviceType* best = nullptr;
  const auto batch = static_cast<double>(space.batch());
  for (const DeviceType& type : space.types()) {
    const bool fits = type.alone_cap >= space.batch();
    const bool best_fits = best != nullptr && best->alone_cap >= space.batch();
    if (best == nullptr || (fits && !best_fits) ||
        (fits == best_fits && type.alone->end.at(batch) < best->alone->end.at(batch))) {
      best = &type;
    }
  }
  return best->members.front();
}

/// Makes a baseline, priced by the simulator if it fits and otherwise by the step model.
Result<Baseline> make_baseline(const SplitSpace& space, const BatchSplit& split, std::string label,
                               std::optional<PricedSplit>& priced) {
  Baseline baseline;
  baseline.label = std::move(label);
  baseline.fits = space.find_faults(split).empty();
  baseline.step = Seconds(model_step(space.evaluator(), split));
  if (baseline.fits) {
    MOTLEY_ASSIGN(baseline.step.value, price(space, split));
    priced = PricedSplit{split, baseline.step.value};
  }
  return baseline;
}

Result<void> add_baselines(Study& study, PlanOutcome& outcome) {
  const SplitSpace& space = study.space;
  const BatchSplit equal = equal_split(space.problem());
  MOTLEY_ASSIGN(outcome.equal_split,
                make_baseline(space, equal, plan::samples_text(equal.samples), study.equal));
  if (equal.devices.size() < space.problem().devices.size()) {  // only a nearly equal split
    outcome.equal_split.label += " (too few samples for all)";
  }
  const BatchSplit single{{find_best_single(space)}, {space.batch()}};
  MOTLEY_ASSIGN(outcome.best_single,
                make_baseline(space, single, space.name(single.devices[0]), study.single));
  return {};
}

/// Searches again with lower caps while the best split does not fit, which happens only if peak
/// memory does not grow with the samples.
SplitSearch search_within_memory(SplitSpace& space) {
  SplitSearch search = find_best_split(space);
  while (search.best && space.lower_caps(*search.best)) search = find_best_split(space);
  return search;
}

/// Adds a drawn sharding or stage plan as it is: no bound covers all of them.
Result<void> add_drawn(const Study& study, const SplitChoice& choice, PlanOutcome& outcome) {
  outcome.plan = choice.stages
                     ? choice.stages->plan
                     : make_region_plan(study.space.problem(), choice.region->region,
                                        choice.region->micro_batches, choice.region->turns);
  const std::vector<Bytes>& peaks = choice.stages ? choice.stages->peaks : choice.region->peaks;
  const auto price = study.space.evaluator().price(*outcome.plan);
  if (!price && !price.error().code.starts_with("cost.")) return tl::make_unexpected(price.error());
  if (price) {
    outcome.predicted_step = price->step;
    outcome.rounding = price->rounding;
    ++outcome.considered;
  }
  outcome.lower_bound = Seconds(0);  // the bound of splits does not apply
  outcome.reason = Reason::kFeasible;
  std::vector<DeviceId> used;
  for (const plan::Member& member : plan::members(*outcome.plan)) {
    outcome.peak.emplace_back(member.device, peaks[used.size()]);
    used.push_back(member.device);
  }
  outcome.idle = plan::idle_devices(study.space.problem(), used);
  outcome.why = choice.why;
  return {};
}

Result<void> add_answer(const Study& study, SplitChoice choice, PlanOutcome& outcome) {
  const SplitSpace& space = study.space;
  const BatchSplit& split = *choice.split;
  if (!choice.seconds) ++outcome.considered;
  outcome.plan = make_split_plan(space.problem(), split);
  MOTLEY_ASSIGN(const plan::Price price, space.evaluator().price(*outcome.plan));
  outcome.predicted_step = price.step;
  outcome.rounding = price.rounding;
  MOTLEY_RETURN_IF_ERROR(claim_bound(outcome.lower_bound, outcome));
  const bool best = price.step.value <= outcome.lower_bound.value * (1 + kSameStep);
  outcome.reason = best ? Reason::kOptimal : Reason::kFeasible;
  for (std::size_t i = 0; i < price.peaks.size(); ++i)
    outcome.peak.emplace_back(split.devices[i], price.peaks[i]);
  outcome.idle = plan::idle_devices(space.problem(), split.devices);
  outcome.why = explain_split(space, split, outcome.idle);
  outcome.why.insert(outcome.why.end(), choice.why.begin(), choice.why.end());
  if (!best) {
    outcome.why.push_back(fmt::format("the step is {:.1f} % above the lower bound of all splits",
                                      100 * (price.step.value / outcome.lower_bound.value - 1)));
  }
  return {};
}

}  // namespace

Result<void> claim_bound(Seconds bound, PlanOutcome& outcome) {
  if (bound.value > outcome.predicted_step.value + outcome.rounding.value)
    return runtime_error(
        "search.bound",
        fmt::format("the lower bound of all plans, {}, is above the step of the plan that planner "
                    "{} found, {}: the bound is wrong",
                    format_seconds(bound), outcome.planner,
                    format_seconds(outcome.predicted_step)));
  outcome.lower_bound = std::min(bound, outcome.predicted_step);
  return {};
}

BatchSplit equal_split(const Problem& problem) {
  const auto devices = static_cast<std::int64_t>(problem.devices.size());
  BatchSplit split;
  for (std::int64_t i = 0; i < devices; ++i) {
    const std::int64_t samples =
        problem.global_batch / devices + (i < problem.global_batch % devices ? 1 : 0);
    if (samples == 0) break;
    split.devices.push_back(problem.devices[static_cast<std::size_t>(i)]);
    split.samples.push_back(samples);
  }
  return split;
}

plan::Plan make_split_plan(const Problem& problem, const BatchSplit& split) {
  plan::Plan plan = plan::blank_plan(problem);
  plan.replicas = plan::make_replicas(split.devices, split.samples);
  return plan;
}

std::int64_t next_micro_batches(std::int64_t global_batch, std::int64_t times) {
  for (std::int64_t next = 2 * times; next <= global_batch; ++next)
    if (global_batch % next == 0) return next;
  return 0;
}

Result<double> price(const SplitSpace& space, const BatchSplit& split) {
  MOTLEY_ASSIGN(const Seconds step,
                space.evaluator().step_time(make_split_plan(space.problem(), split)));
  return step.value;
}

Result<PlanOutcome> SplitPlanner::plan(const Problem& problem) const {
  MOTLEY_ASSIGN(SplitSpace space, SplitSpace::make(problem, *inputs_.evaluator));
  SplitSearch search = search_within_memory(space);
  Study study{std::move(space), std::move(search), {}, {}};
  PlanOutcome outcome;
  outcome.planner = name();
  MOTLEY_RETURN_IF_ERROR(add_baselines(study, outcome));
  outcome.considered = study.search.considered + (study.equal ? 1 : 0) + (study.single ? 1 : 0);
  outcome.lower_bound = Seconds(study.search.best ? study.search.lower_bound : 0.0);
  MOTLEY_ASSIGN(SplitChoice choice, choose(study));
  outcome.considered += choice.considered;
  if (choice.split) {
    std::vector<std::string> faults = study.space.find_faults(*choice.split);
    if (!faults.empty()) choice = SplitChoice{.why = std::move(faults)};
  }
  if (choice.region || choice.stages) {
    MOTLEY_RETURN_IF_ERROR(add_drawn(study, choice, outcome));
    return outcome;
  }
  if (!choice.split) {
    outcome.reason = Reason::kInfeasible;
    outcome.why = std::move(choice.why);
    outcome.idle = problem.devices;
    return outcome;
  }
  MOTLEY_RETURN_IF_ERROR(add_answer(study, std::move(choice), outcome));
  if (inputs_.graph == nullptr || problem.devices.size() < 2) return outcome;
  for (std::string& line :
       graph::explain_without_rule(*inputs_.graph, {{"batch", problem.global_batch}}))
    outcome.why.push_back(std::move(line));
  return outcome;
}

}  // namespace motley::search
