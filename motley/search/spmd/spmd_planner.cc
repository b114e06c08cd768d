#include "motley/search/spmd/spmd_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "motley/base/text.h"
#include "motley/graph/rules/without_rule.h"
#include "motley/search/region/random_region.h"
#include "motley/search/split/water_filling.h"
#include "motley/search/spmd/bound.h"
#include "motley/search/spmd/explain_sharding.h"
#include "motley/search/spmd/hap_search.h"
#include "motley/search/spmd/spmd_search.h"
#include "motley/synth/ranks/sharded_plan.h"

namespace motley::search {
namespace {

using plan::PlanOutcome;
using plan::Problem;
using plan::Reason;

constexpr double kNoStep = std::numeric_limits<double>::infinity();
constexpr double kLeastGain = 0.02;  // of the step; less gain is not worth more micro-batches
constexpr double kForetold = 0.01;   // accepted excess of the whole program over its estimate
constexpr std::int64_t kTurns = 2;   // micro-batches in flight at once when interleaved
constexpr double kProven = 1e-3;     // relative gap to the bound within which a plan is optimal

/// Returns "a:0 needs 17.9 GiB, has 14.8 GiB" for each device that lacks memory.
std::vector<std::string> lack_of_memory(const Problem& problem, const SpmdPlan& nearest) {
  const std::int64_t times = nearest.sharding.micro_batches;
  const std::string often = times == 1 ? "" : fmt::format(" and {} micro-batches", times);
  std::vector<std::string> lines;
  for (std::size_t rank = 0; rank < nearest.devices.size(); ++rank) {
    const cluster::Device& device = problem.cluster->device(nearest.devices[rank]);
    if (device.room() && nearest.peaks[rank] > *device.room())
      lines.push_back(fmt::format("{} needs {} even with parameters in parts{}, has {}: {} short",
                                  device.name, format_bytes(nearest.peaks[rank]), often,
                                  format_bytes(*device.room()),
                                  format_bytes(nearest.peaks[rank] - *device.room())));
  }
  lines.push_back("a smaller global batch, more devices or that much more memory would help");
  return lines;
}

constexpr const char* kEnded = "the time limit ended the search: more time may find a better plan";

/// Returns a split's samples by allowed device.
std::vector<double> samples_of(const Problem& problem, const plan::Plan& split) {
  std::vector<double> samples(problem.devices.size(), 0.0);
  for (const plan::Member& member : plan::members(split)) {
    const auto at = std::find(problem.devices.begin(), problem.devices.end(), member.device);
    samples[static_cast<std::size_t>(at - problem.devices.begin())] =
        static_cast<double>(member.samples);
  }
  return samples;
}

/// A question, the study shared by its searches, and their answer.
struct Inquiry {
  SpmdQuestion question;
  std::optional<SpmdStudy> study;  // of `question`, so an inquiry does not move
  SpmdAnswer answer;
};

Result<std::unique_ptr<Inquiry>> inquire(SpmdMethod method, const SpmdQuestion& question) {
  auto inquiry = std::make_unique<Inquiry>(Inquiry{question, std::nullopt, {}});
  MOTLEY_ASSIGN(inquiry->study, SpmdStudy::make(inquiry->question));
  SpmdAnswer& answer = inquiry->answer;
  if (method != SpmdMethod::kHap) {
    MOTLEY_ASSIGN(answer, find_spmd_plan(*inquiry->study));
    return inquiry;
  }
  MOTLEY_ASSIGN(SpmdPlan plan, find_hap_plan(*inquiry->study));
  answer.considered = 1;
  (plan.fits() ? answer.best : answer.nearest) = std::move(plan);
  return inquiry;
}

const SpmdPlan& shown(const SpmdAnswer& answer) {
  return answer.best ? *answer.best : *answer.nearest;
}

/// A search over increasing numbers of micro-batches.
struct Inquiries {
  std::unique_ptr<Inquiry> best;
  plan::Price price;    // of the answer's best plan, if any
  std::string refused;  // why more micro-batches are impossible, if they could help
};

/// Does a plan that lacks memory take clearly less than the best that fits, if any?
bool may_gain(const SpmdAnswer& tried, const std::optional<SpmdPlan>& best, Seconds known) {
  const double step = best ? std::min(best->step, known).value : known.value;
  return tried.lacking_step.value < step * (1 - kLeastGain);
}

/// Widens a bound for one micro-batch to any number.
void bound_any(Inquiry& inquiry) {
  SpmdAnswer& answer = inquiry.answer;
  if (answer.bounded == BoundedBatches::kAny || inquiry.question.micro_batches > 1) return;
  const double known = answer.best ? answer.best->step.value : kNoStep;
  answer.lower_bound = std::min(
      answer.lower_bound,
      spmd_lower_bound(*inquiry.study, std::min(Seconds(known), inquiry.question.enough_bound)));
  answer.bounded = BoundedBatches::kAny;
}

/// Doubles micro-batches while plans lack memory, or takes the next divisor of the batch, as fewer
/// activations are then held at a time; stops when plans that lack memory are no faster than those
/// that fit.
Result<void> search_on(SpmdMethod method, SpmdQuestion question, Inquiries& found) {
  bool goes_on = method != SpmdMethod::kHap &&
                 may_gain(found.best->answer, found.best->answer.best, question.known_step);
  while (goes_on && !question.deadline.has_passed()) {
    const std::int64_t more = next_micro_batches(question.global_batch, question.micro_batches);
    if (more == 0) break;
    question.micro_batches = more;
    if (const auto& best = found.best->answer.best)
      question.known_step = std::min(question.known_step, best->step);
    auto next = inquire(method, question);
    if (!next && next.error().code == "synth.accumulation") {
      found.refused = next.error().message;
      break;
    }
    if (!next) return tl::make_unexpected(next.error());
    SpmdAnswer &answer = (*next)->answer, &known = found.best->answer;
    if (!answer.best && !answer.nearest) break;  // everything is slower than a known plan
    bound_any(*found.best);
    const bool is_better =
        (!known.best && !known.nearest) || shown(answer).is_better_than(shown(known));
    goes_on = may_gain(answer, is_better ? answer.best : known.best, question.known_step);
    answer.considered += known.considered;
    known.considered = answer.considered;
    answer.lower_bound = known.lower_bound;
    answer.bounded = known.bounded;
    answer.was_ended = known.was_ended = answer.was_ended || known.was_ended;
    if (is_better) found.best = std::move(*next);
  }
  found.best->answer.was_ended |= goes_on && question.deadline.has_passed();
  return {};
}

plan::Plan make_plan(const Problem& problem, const Inquiry& inquiry, const SpmdPlan& found) {
  const SpmdQuestion& question = inquiry.question;
  const synth::Sharding sharding =
      question.depths ? spread_over_whole(found.sharding, question.depths->searched)
                      : found.sharding;
  plan::Plan plan =
      make_region_plan(problem, synth::make_region(*question.graph, sharding, *problem.cluster),
                       question.micro_batches, question.turns);
  plan.bucket_bytes = question.lowering.bucket_bytes;
  return plan;
}

/// Sets the exchange methods of a plan to the best ones in the program of all layers.
Result<void> set_ways(Inquiry& inquiry, SpmdPlan& plan) {
  const std::shared_ptr<const Depths>& depths = inquiry.question.depths;
  if (!depths) return {};
  MOTLEY_ASSIGN(plan.sharding.exchanges,
                choose_ways(*inquiry.study, plan.devices,
                            spread_over_whole(plan.sharding, depths->searched)));
  return {};
}

/// Prices an inquiry's best plan by its program instead of the estimate. If it was searched in
/// fewer layers (depths.h), layers may fit together worse than estimated, as values change their
/// form between them. If the step is clearly longer than estimated, all layers are searched.
Result<plan::Price> price_best(SpmdMethod method, const PlannerInputs& inputs,
                               const Problem& problem, std::unique_ptr<Inquiry>& inquiry) {
  const auto take_price = [&](Inquiry& from) -> Result<plan::Price> {
    SpmdPlan& best = *from.answer.best;
    MOTLEY_RETURN_IF_ERROR(set_ways(from, best));
    MOTLEY_ASSIGN(plan::Price price, inputs.evaluator->price(make_plan(problem, from, best)));
    best = with_price(*from.study, std::move(best), price);
    return price;
  };
  const Seconds estimate = inquiry->answer.best->step;
  MOTLEY_ASSIGN(plan::Price price, take_price(*inquiry));
  SpmdQuestion question = inquiry->question;
  if (!question.depths || question.deadline.has_passed() ||
      price.step.value <= estimate.value * (1 + kForetold))
    return price;
  question.depths = nullptr;
  question.known_step = std::min(question.known_step, price.step);
  // The bound is known, unless the search stopped improving it close to the estimate.
  const bool is_bounded = inquiry->answer.lower_bound.value < estimate.value * (1 - kProven);
  if (is_bounded) question.enough_bound = Seconds(0);
  MOTLEY_ASSIGN(auto whole, inquire(method, question));
  SpmdAnswer &answer = whole->answer, &known = inquiry->answer;
  known.considered += answer.considered;
  known.was_ended = known.was_ended || answer.was_ended;
  known.lacking_step = std::min(known.lacking_step, answer.lacking_step);
  if (answer.lower_bound > known.lower_bound) {
    known.lower_bound = answer.lower_bound;
    known.bounded = answer.bounded;
  }
  if (!answer.best) return price;
  MOTLEY_ASSIGN(plan::Price other, take_price(*whole));
  if (!answer.best->fits() || (known.best->fits() && other.step >= price.step)) return price;
  known.best = std::move(answer.best);
  answer = std::move(known);
  whole->question.enough_bound = inquiry->question.enough_bound;
  inquiry = std::move(whole);
  return other;
}

/// Tries the largest allowed buckets: fewer exchanges, with one wait each, but later starts.
Result<void> try_larger_buckets(const PlannerInputs& inputs, const Problem& problem,
                                Inquiry& inquiry, plan::Price& price) {
  Bytes& bucket = inquiry.question.lowering.bucket_bytes;
  if (problem.most_bucket_bytes <= bucket || inquiry.question.deadline.has_passed()) return {};
  SpmdPlan& best = *inquiry.answer.best;
  const Bytes before = std::exchange(bucket, problem.most_bucket_bytes);
  MOTLEY_ASSIGN(SpmdPlan larger, price_sharding(*inquiry.study, best.devices, best.sharding));
  MOTLEY_RETURN_IF_ERROR(set_ways(inquiry, larger));
  MOTLEY_ASSIGN(plan::Price other, inputs.evaluator->price(make_plan(problem, inquiry, larger)));
  larger = with_price(*inquiry.study, std::move(larger), other);
  ++inquiry.answer.considered;
  if (larger.fits() && other.step < price.step) {
    best = std::move(larger);
    price = std::move(other);
  } else {
    bucket = before;
  }
  return {};
}

/// Returns the step time beyond the busiest device's compute: what interleaving could hide.
double exposed(const SpmdPlan& plan) {
  return plan.step.value - *std::max_element(plan.compute.begin(), plan.compute.end());
}

/// Tries the same samples at a time in two interleaved micro-batches (or interleaves requested ones
/// in pairs) if the best plan waits for exchanges, which these may hide. Keeps the result if its
/// program is faster; the bound covers such plans, too.
Result<void> try_turns(const PlannerInputs& inputs, const Problem& problem, bool may_go_on,
                       Inquiries& found) {
  SpmdAnswer& known = found.best->answer;
  SpmdQuestion question = found.best->question;
  if (may_go_on) question.micro_batches *= kTurns;
  // If nothing beats a known plan, its waits are unknown.
  const bool may_gain = !known.best || exposed(*known.best) >= kLeastGain * known.best->step.value;
  if (known.was_ended || !may_gain || question.micro_batches % kTurns != 0 ||
      question.global_batch % question.micro_batches != 0)
    return {};
  question.turns = kTurns;
  question.lowering.bucket_bytes = problem.bucket_bytes;
  if (known.best) question.known_step = std::min(question.known_step, found.price.step);
  auto next = inquire(SpmdMethod::kSpmd, question);
  if (!next && next.error().code == "synth.accumulation") return {};  // needs all samples at once
  if (!next) return tl::make_unexpected(next.error());
  Seconds step = question.known_step;
  std::optional<plan::Price> price;
  if ((*next)->answer.best) {
    MOTLEY_ASSIGN(price, price_best(SpmdMethod::kSpmd, inputs, problem, *next));
    MOTLEY_RETURN_IF_ERROR(try_larger_buckets(inputs, problem, **next, *price));
    if (!(*next)->answer.best->fits() || price->step >= step) price.reset();
  }
  SpmdAnswer& answer = (*next)->answer;
  known.considered += answer.considered;
  known.was_ended = answer.was_ended;
  if (price) step = price->step;
  if (known.lower_bound.value > 0)
    known.lower_bound = std::min(
        known.lower_bound,
        spmd_lower_bound(*(*next)->study, std::min(step, known.lower_bound), BoundedBatches::kOne));
  if (!price) return {};
  answer.considered = known.considered;
  answer.lower_bound = known.lower_bound;
  answer.bounded = known.bounded;
  found.price = *std::move(price);
  found.best = std::move(*next);
  return {};
}

/// Searches and prices the best plan. `may_go_on`: to more micro-batches.
Result<Inquiries> search(SpmdMethod method, const PlannerInputs& inputs, const Problem& problem,
                         const SpmdQuestion& question, bool may_go_on) {
  Inquiries found;
  MOTLEY_ASSIGN(found.best, inquire(method, question));
  while (true) {
    SpmdQuestion onwards = question;
    onwards.micro_batches = found.best->question.micro_batches;
    if (may_go_on) MOTLEY_RETURN_IF_ERROR(search_on(method, std::move(onwards), found));
    if (!found.best->answer.best) {
      const bool is_known = std::isfinite(question.known_step.value);
      if (method == SpmdMethod::kSpmd && is_known && !found.best->answer.nearest)
        MOTLEY_RETURN_IF_ERROR(try_turns(inputs, problem, may_go_on, found));
      return found;
    }
    MOTLEY_ASSIGN(found.price, price_best(method, inputs, problem, found.best));
    SpmdAnswer& answer = found.best->answer;
    if (answer.best->fits()) {
      if (method != SpmdMethod::kSpmd) return found;
      MOTLEY_RETURN_IF_ERROR(try_larger_buckets(inputs, problem, *found.best, found.price));
      MOTLEY_RETURN_IF_ERROR(try_turns(inputs, problem, may_go_on, found));
      return found;
    }
    answer.lacking_step = std::min(answer.lacking_step, answer.best->step);
    answer.nearest = std::exchange(answer.best, std::nullopt);
    if (!may_go_on) return found;
  }
}

Result<void> take(const Problem& problem, const Inquiries& found, PlanOutcome& outcome) {
  Inquiry& inquiry = *found.best;
  const plan::Price& price = found.price;
  const SpmdAnswer& answer = inquiry.answer;
  SpmdStudy& study = *inquiry.study;
  const SpmdPlan& best = *answer.best;
  outcome.plan = make_plan(problem, inquiry, best);
  outcome.predicted_step = price.step;
  outcome.rounding = price.rounding;
  outcome.peak.clear();
  for (std::size_t rank = 0; rank < best.devices.size(); ++rank)
    outcome.peak.emplace_back(best.devices[rank], price.peaks[rank]);
  outcome.idle = plan::idle_devices(problem, best.devices);
  outcome.why = explain_sharding(study, best);
  MOTLEY_RETURN_IF_ERROR(set_bound(answer.lower_bound, answer.was_ended, outcome));
  if (answer.lower_bound.value > 0)
    outcome.why.push_back(
        fmt::format("the step is {:.1f} % above the lower bound of all shardings and splits",
                    100 * (price.step.value / outcome.lower_bound.value - 1)));
  for (std::string& line :
       graph::explain_without_rule(*inquiry.question.graph, {{"batch", problem.global_batch}}))
    outcome.why.push_back(std::move(line));
  return {};
}

}  // namespace

Result<void> set_bound(Seconds bound, bool was_ended, PlanOutcome& outcome) {
  MOTLEY_RETURN_IF_ERROR(claim_bound(bound, outcome));
  const double step = outcome.predicted_step.value;
  const bool is_proven = step <= bound.value * (1 + kProven);
  outcome.reason = is_proven ? Reason::kOptimal : !was_ended ? Reason::kFeasible : Reason::kLimit;
  const bool is_said = !outcome.why.empty() && outcome.why.back() == kEnded;
  if (outcome.reason == Reason::kLimit && !is_said) outcome.why.push_back(kEnded);
  return {};
}

Result<bool> take_better(const Problem& problem, const plan::Plan& plan, const plan::Price& price,
                         std::vector<std::string> why, PlanOutcome& outcome) {
  std::vector<std::pair<DeviceId, Bytes>> peaks;
  std::vector<DeviceId> used;
  for (const plan::Member& member : plan::members(plan)) {
    const auto memory = problem.cluster->device(member.device).room();
    peaks.emplace_back(member.device, price.peaks[used.size()]);
    used.push_back(member.device);
    if (memory && peaks.back().second > *memory) return false;
  }
  outcome.alternatives.push_back({plan, price.step});
  if (outcome.plan && price.step >= outcome.predicted_step) return false;
  outcome.plan = plan;
  outcome.predicted_step = price.step;
  outcome.rounding = price.rounding;
  outcome.peak = std::move(peaks);
  outcome.idle = plan::idle_devices(problem, used);
  outcome.why = std::move(why);
  const bool was_ended = outcome.reason == Reason::kLimit;
  MOTLEY_RETURN_IF_ERROR(set_bound(outcome.lower_bound, was_ended, outcome));
  return true;
}

SpmdQuestion spmd_question(const PlannerInputs& inputs, const Problem& problem) {
  SpmdQuestion question{inputs.graph,
                        problem.cluster,
                        inputs.costs,
                        {problem.recipe, problem.batch_norm, problem.bucket_bytes,
                         problem.batch_norm_span, problem.updates},
                        problem.global_batch,
                        problem.devices,
                        {}};
  question.most_bucket_bytes = problem.most_bucket_bytes;
  question.copies = problem.copies;
  return question;
}

bool may_shard(const Problem& problem, const PlannerInputs& inputs) {
  return inputs.costs != nullptr && problem.devices.size() > 1 &&
         problem.batch_norm == plan::BatchNormMode::kGlobal;
}

Result<SpmdOutcome> plan_sharding(SpmdMethod method, const PlannerInputs& inputs,
                                  const Problem& problem, const SpmdStart& start) {
  SpmdQuestion question = spmd_question(inputs, problem);
  question.deadline = start.deadline;
  question.micro_batches = std::max<std::int64_t>(1, start.micro_batches);
  question.depths = find_depths(*inputs.graph);
  question.known_step = start.known_step;
  question.enough_bound = start.enough_bound;
  const PlanOutcome& split = *start.split;
  if (split.plan) question.shares.push_back(samples_of(problem, *split.plan));
  MOTLEY_ASSIGN(const Inquiries inquiries,
                search(method, inputs, problem, question, start.micro_batches == 0));
  const std::string& refused = inquiries.refused;
  const SpmdAnswer& answer = inquiries.best->answer;
  SpmdOutcome found{split, answer.was_ended};
  PlanOutcome& outcome = found.outcome;
  outcome.considered += answer.considered;
  if (answer.best) {
    MOTLEY_RETURN_IF_ERROR(take(problem, inquiries, outcome));
    if (split.plan)
      outcome.why.push_back(fmt::format("the best split of the batch alone takes {}",
                                        format_seconds(split.predicted_step)));
    if (!refused.empty()) outcome.why.push_back(refused);
    return found;
  }
  outcome.plan.reset();
  outcome.lower_bound = answer.lower_bound;
  outcome.peak.clear();
  outcome.idle = problem.devices;
  outcome.reason = answer.was_ended ? Reason::kLimit : Reason::kInfeasible;
  if (split.plan) outcome.why.clear();
  if (answer.nearest)
    for (std::string& line : lack_of_memory(problem, *answer.nearest))
      outcome.why.push_back(std::move(line));
  if (!refused.empty()) outcome.why.push_back(refused);
  if (answer.was_ended) outcome.why.push_back(kEnded);
  return found;
}

Result<PlanOutcome> SpmdPlanner::plan(const Problem& problem) const {
  const Deadline deadline = Deadline::after(problem.time_limit);
  MOTLEY_ASSIGN(PlanOutcome split, WaterFilling(inputs_).plan(problem));
  split.planner = name();
  if (!may_shard(problem, inputs_)) return split;
  MOTLEY_ASSIGN(SpmdOutcome found, plan_sharding(method_, inputs_, problem, {&split, deadline}));
  return std::move(found.outcome);
}

}  // namespace motley::search
