#include "motley/search/accumulating.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "motley/base/text.h"
#include "motley/plan/shares.h"
#include "motley/search/portfolio.h"
#include "motley/search/split/fixed_planners.h"
#include "motley/search/split/water_filling.h"
#include "motley/search/spmd/bound.h"
#include "motley/search/spmd/spmd_planner.h"
#include "motley/synth/lower.h"
#include "motley/synth/ranks/accumulation.h"
#include "motley/synth/ranks/exchange_methods.h"

namespace motley::search {

Result<plan::Problem> Accumulating::one_micro_batch(const plan::Problem& problem) const {
  plan::Problem one = problem;
  one.known.clear();
  one.batch_norm_span = plan::BatchNormSpan::kStep;
  one.global_batch /= times_;
  bool divides = problem.global_batch % times_ == 0;
  for (std::int64_t& samples : one.manual) {
    divides = divides && samples % times_ == 0;
    samples /= times_;
  }
  if (divides) return one;
  return usage_error(
      "search.micro-batches",
      fmt::format("--micro-batches: found {} for a global batch of {}{}, wanted a number that "
                  "divides {}",
                  times_, problem.global_batch,
                  problem.manual.empty() ? "" : " and the samples of each device",
                  problem.manual.empty() ? "it" : "them"));
}

/// How the exchanges of a shared region are carried out: as in two micro-batches, and in three if
/// there are so many.
Result<void> Accumulating::choose_exchanges(const plan::Problem& problem, plan::Plan& plan) const {
  plan::Region& region = plan.replicas[0].regions[0];
  if (region.exchanges.empty()) return {};
  region.exchanges.clear();
  SpmdQuestion question = spmd_question(inputs_, problem);
  question.devices = region.devices;
  question.micro_batches = times_;
  MOTLEY_ASSIGN(SpmdStudy study, SpmdStudy::make(question));
  const auto lower = [&](std::int64_t fewer) {
    return synth::lower(*inputs_.graph, plan::in_micro_batches(plan, fewer), *problem.cluster);
  };
  MOTLEY_ASSIGN(region.exchanges, fastest_ways({2, std::min(times_, kPricedMicroBatches)}, lower,
                                               study.exchanges(region.devices)));
  return {};
}

/// The bound of the batch at once holds for any number of micro-batches (docs/algorithms.md), where
/// it is known; the search was for one of them.
Result<Seconds> Accumulating::lower_bound(const plan::Problem& problem, Seconds step) const {
  if (!may_shard(problem, inputs_)) return Seconds(0);
  const SpmdQuestion question = spmd_question(inputs_, problem);
  MOTLEY_ASSIGN(SpmdStudy study, SpmdStudy::make(question));
  return spmd_lower_bound(study, step);
}

/// No plan: it was the one that was searched for, and it does not fit.
void Accumulating::say_what_lacks(const plan::Problem& problem, const plan::Plan& plan,
                                  const plan::Price& price, plan::PlanOutcome& outcome) const {
  outcome.reason = plan::Reason::kInfeasible;
  outcome.peak.clear();
  outcome.idle = problem.devices;
  const std::vector<plan::Member> members = plan::members(plan);
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    const cluster::Device& device = problem.cluster->device(members[rank].device);
    if (!device.room() || price.peaks[rank] <= *device.room()) continue;
    outcome.why.push_back(fmt::format("{} needs {} in {} micro-batches, has {}", device.name,
                                      format_bytes(price.peaks[rank]), times_,
                                      format_bytes(*device.room())));
  }
}

/// A plan of one micro-batch, for all of them.
Result<void> Accumulating::take_repeated(const plan::Problem& problem, plan::Plan plan,
                                         std::vector<std::string> why,
                                         plan::PlanOutcome& outcome) const {
  plan.global_batch = problem.global_batch;
  plan.batch_norm_span = problem.batch_norm_span;
  for (plan::Replica& replica : plan.replicas) {
    replica.samples *= times_;
    // What took turns in one of those that were asked for are some of these.
    replica.micro_batches = times_ * replica.micro_batches / replica.turns;
    replica.turns = std::min(replica.turns, replica.micro_batches);
  }
  MOTLEY_RETURN_IF_ERROR(choose_exchanges(problem, plan));
  MOTLEY_ASSIGN(const plan::Price price, inputs_.evaluator->price(plan));
  why.insert(why.begin(), fmt::format("{}; what follows is of one of {} samples",
                                      as_asked_for(problem), problem.global_batch / times_));
  MOTLEY_ASSIGN(const bool fits, take_better(problem, plan, price, std::move(why), outcome));
  if (!fits) say_what_lacks(problem, plan, price, outcome);
  return {};
}

Result<void> Accumulating::consider(const plan::Problem& problem, const plan::Plan& plan,
                                    std::vector<std::string> why,
                                    plan::PlanOutcome& outcome) const {
  MOTLEY_ASSIGN(const plan::Price price, inputs_.evaluator->price(plan));
  ++outcome.considered;
  MOTLEY_RETURN_IF_ERROR(take_better(problem, plan, price, std::move(why), outcome));
  return {};
}

/// The best split of the batch at once, in proportion.
Result<void> Accumulating::consider_split(const plan::Problem& problem,
                                          plan::PlanOutcome& outcome) const {
  MOTLEY_ASSIGN(const plan::PlanOutcome split, WaterFilling(inputs_).plan(problem));
  if (!split.plan) return {};
  plan::Plan plan = *split.plan;
  std::vector<double> samples;
  for (const plan::Replica& replica : plan.replicas)
    samples.push_back(static_cast<double>(replica.samples));
  const auto parts = plan::round_shares(samples, problem.global_batch / times_);
  if (*std::min_element(parts.begin(), parts.end()) < problem.min_samples) return {};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    plan.replicas[i].samples = parts[i] * times_;
    plan.replicas[i].micro_batches = times_;
  }
  return consider(problem, plan,
                  {fmt::format("{}: {}, in proportion to the best split of the batch at once",
                               as_asked_for(problem), plan::samples_text(parts))},
                  outcome);
}

/// A search that counts what is exchanged once as once.
Result<void> Accumulating::consider_sharding(const plan::Problem& problem,
                                             plan::PlanOutcome& outcome) const {
  const plan::PlanOutcome none;
  const Deadline deadline = Deadline::after(problem.time_limit);
  MOTLEY_ASSIGN(const SpmdOutcome sharded,
                plan_sharding(SpmdMethod::kSpmd, inputs_, problem, {&none, deadline, times_}));
  if (!sharded.outcome.plan) return {};
  std::vector<std::string> why = sharded.outcome.why;
  why.insert(why.begin(), as_asked_for(problem));
  return consider(problem, *sharded.outcome.plan, std::move(why), outcome);
}

plan::Problem Accumulating::with_own_statistics(const plan::Problem& problem) const {
  plan::Problem asked = problem;
  if (synth::trains_batch_norm(*inputs_.graph))
    asked.batch_norm_span = plan::BatchNormSpan::kMicroBatch;
  return asked;
}

std::string Accumulating::as_asked_for(const plan::Problem& problem) const {
  const bool has_own = problem.batch_norm_span == plan::BatchNormSpan::kMicroBatch;
  return fmt::format("{} micro-batches, as asked for{}", times_,
                     has_own ? ", each with its own statistics of batch norm" : "");
}

Result<plan::PlanOutcome> Accumulating::plan(const plan::Problem& given) const {
  const plan::Problem problem = with_own_statistics(given);
  MOTLEY_ASSIGN(const plan::Problem one, one_micro_batch(problem));
  MOTLEY_ASSIGN(plan::PlanOutcome outcome, one_->plan(one));
  MOTLEY_ASSIGN(const plan::PlanOutcome at_once, EqualPlanner(inputs_).plan(problem));
  outcome.equal_split = at_once.equal_split;
  outcome.best_single = at_once.best_single;
  if (outcome.plan) {
    const plan::Plan found = *std::exchange(outcome.plan, std::nullopt);
    MOTLEY_RETURN_IF_ERROR(take_repeated(problem, found, std::exchange(outcome.why, {}), outcome));
  }
  // One micro-batch exchanges all gradients, which all of them do once.
  const bool is_searched = name() == "auto" || name() == "spmd";
  if (is_searched || name() == "split") MOTLEY_RETURN_IF_ERROR(consider_split(problem, outcome));
  if (is_searched && may_shard(problem, inputs_))
    MOTLEY_RETURN_IF_ERROR(consider_sharding(problem, outcome));
  MOTLEY_RETURN_IF_ERROR(reconsider_known(inputs_, problem, outcome));
  if (!outcome.plan) return outcome;
  MOTLEY_ASSIGN(const Seconds bound, lower_bound(problem, outcome.predicted_step));
  const bool was_ended = outcome.reason == plan::Reason::kLimit;
  MOTLEY_RETURN_IF_ERROR(set_bound(std::max(outcome.lower_bound, bound), was_ended, outcome));
  return outcome;
}

}  // namespace motley::search
