#include "motley/search/spmd/spmd_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "motley/base/text.h"
#include "motley/search/planners.h"
#include "motley/search/random_region.h"
#include "motley/search/split_planner.h"
#include "motley/search/spmd/explain_sharding.h"
#include "motley/search/spmd/hap_search.h"
#include "motley/search/spmd/spmd_search.h"
#include "motley/synth/sharded_plan.h"

namespace motley::search {
namespace {

using plan::PlanOutcome;
using plan::Problem;
using plan::Reason;

constexpr double kLeastGain = 0.02;  // for which `auto` leaves a split, and more is tried
constexpr double kProven = 1e-3;     // within which of the bound a plan is optimal

/// "a:0 needs 17.9 GiB, has 14.8 GiB" of each device that lacks memory.
std::vector<std::string> lack_of_memory(const Problem& problem, const SpmdPlan& nearest) {
  const std::int64_t times = nearest.sharding.micro_batches;
  const std::string often = times == 1 ? "" : fmt::format(" and {} micro-batches", times);
  std::vector<std::string> lines;
  for (std::size_t rank = 0; rank < nearest.devices.size(); ++rank) {
    const cluster::Device& device = problem.cluster->device(nearest.devices[rank]);
    if (device.memory && nearest.peaks[rank] > *device.memory)
      lines.push_back(fmt::format("{} needs {} even with parameters in parts{}, has {}: {} short",
                                  device.name, format_bytes(nearest.peaks[rank]), often,
                                  format_bytes(*device.memory),
                                  format_bytes(nearest.peaks[rank] - *device.memory)));
  }
  lines.push_back("a smaller global batch, more devices or that much more memory would help");
  return lines;
}

constexpr const char* kEnded = "the time limit ended the search: more time may find a better plan";

/// The samples of a split, by device that may be used.
std::vector<double> samples_of(const Problem& problem, const plan::Plan& split) {
  std::vector<double> samples(problem.devices.size(), 0.0);
  for (const plan::Member& member : plan::members(split)) {
    const auto at = std::find(problem.devices.begin(), problem.devices.end(), member.device);
    samples[static_cast<std::size_t>(at - problem.devices.begin())] =
        static_cast<double>(member.samples);
  }
  return samples;
}

/// A question, what its searches share, and what they found.
struct Inquiry {
  SpmdQuestion question;
  std::optional<SpmdStudy> study;  // of `question`, so an inquiry does not move
  SpmdAnswer answer;
};

Result<std::unique_ptr<Inquiry>> inquire(SpmdPlanner::Kind kind, const SpmdQuestion& question) {
  auto inquiry = std::make_unique<Inquiry>(Inquiry{question, std::nullopt, {}});
  MOTLEY_ASSIGN(inquiry->study, SpmdStudy::make(inquiry->question));
  SpmdAnswer& answer = inquiry->answer;
  if (kind != SpmdPlanner::Kind::kHap) {
    MOTLEY_ASSIGN(answer, find_spmd_plan(*inquiry->study));
    return inquiry;
  }
  MOTLEY_ASSIGN(SpmdPlan plan, find_hap_plan(*inquiry->study));
  answer.considered = 1;
  (plan.fits() ? answer.best : answer.nearest) = std::move(plan);
  return inquiry;
}

/// Where plans lack memory: twice as many micro-batches, which hold fewer activations at a time,
/// while that helps.
Result<std::unique_ptr<Inquiry>> search(SpmdPlanner::Kind kind, SpmdQuestion question) {
  MOTLEY_ASSIGN(auto best, inquire(kind, question));
  bool lacked_memory = kind != SpmdPlanner::Kind::kHap && best->answer.lacked_memory;
  while (lacked_memory && question.micro_batch() % 2 == 0 && !question.deadline.has_passed()) {
    question.micro_batches *= 2;
    auto next = inquire(kind, question);
    if (!next && next.error().code == "synth.accumulation") break;
    if (!next) return next;
    SpmdAnswer &answer = (*next)->answer, &known = best->answer;
    const auto shown = [](const SpmdAnswer& of) -> const SpmdPlan& {
      return of.best ? *of.best : *of.nearest;
    };
    const bool is_better = shown(answer).is_better_than(shown(known), answer.best ? 0 : kLeastGain);
    lacked_memory = answer.lacked_memory && is_better;
    answer.considered += known.considered;
    known.considered = answer.considered;
    answer.lower_bound = known.lower_bound;
    answer.was_ended = known.was_ended = answer.was_ended || known.was_ended;
    if (is_better) best = std::move(*next);
  }
  best->answer.was_ended |= lacked_memory && question.deadline.has_passed();
  return best;
}

/// What the search claims of a step.
void set_reason(const SpmdAnswer& answer, PlanOutcome& outcome) {
  outcome.lower_bound = std::min(answer.lower_bound, outcome.predicted_step);
  const bool is_proven = outcome.predicted_step.value <= answer.lower_bound.value * (1 + kProven);
  outcome.reason = is_proven           ? Reason::kOptimal
                   : !answer.was_ended ? Reason::kFeasible
                                       : Reason::kLimit;
  if (outcome.reason == Reason::kLimit) outcome.why.push_back(kEnded);
}

/// Puts a sharding in the place of what the outcome has.
void take(const Problem& problem, Inquiry& inquiry, PlanOutcome& outcome) {
  const SpmdAnswer& answer = inquiry.answer;
  SpmdStudy& study = *inquiry.study;
  const SpmdPlan& best = *answer.best;
  outcome.plan =
      make_region_plan(problem, synth::make_region(study.graph(), best.sharding, *problem.cluster),
                       inquiry.question.micro_batches);
  outcome.predicted_step = best.step;
  outcome.peak.clear();
  for (std::size_t rank = 0; rank < best.devices.size(); ++rank)
    outcome.peak.emplace_back(best.devices[rank], best.peaks[rank]);
  outcome.idle = idle_devices(problem, best.devices);
  outcome.why = explain_sharding(study, best);
  set_reason(answer, outcome);
  if (answer.lower_bound.value > 0)
    outcome.why.push_back(
        fmt::format("the step is {:.1f} % above the lower bound of all shardings and splits",
                    100 * (best.step.value / answer.lower_bound.value - 1)));
}

}  // namespace

std::string_view SpmdPlanner::name() const {
  return kind_ == Kind::kSpmd ? "spmd" : kind_ == Kind::kHap ? "hap" : "auto";
}

Result<PlanOutcome> SpmdPlanner::plan(const Problem& problem) const {
  const Deadline deadline = Deadline::after(problem.time_limit);
  MOTLEY_ASSIGN(const auto split_planner, make_planner("auto"));
  MOTLEY_ASSIGN(PlanOutcome outcome, split_planner->plan(problem));
  outcome.planner = name();
  const bool may_shard =
      problem.devices.size() > 1 && problem.batch_norm == plan::BatchNormMode::kGlobal;
  if (!may_shard) return outcome;
  SpmdQuestion question{graph_,
                        problem.cluster,
                        costs_,
                        {problem.optimizer, problem.batch_norm, problem.bucket_bytes},
                        problem.global_batch,
                        problem.devices};
  question.deadline = deadline;
  if (outcome.plan) question.shares.push_back(samples_of(problem, *outcome.plan));
  auto inquiry = search(kind_, std::move(question));
  if (!inquiry && kind_ == Kind::kAuto) {
    outcome.why.push_back("no sharding of operators was considered: " + inquiry.error().message);
    return outcome;
  }
  if (!inquiry) return tl::make_unexpected(inquiry.error());
  const SpmdAnswer* answer = &(*inquiry)->answer;
  outcome.considered += answer->considered;
  if (!answer->best) {
    if (kind_ == Kind::kAuto && outcome.plan) {
      set_reason(*answer, outcome);
      return outcome;
    }
    outcome.plan.reset();
    outcome.reason = answer->was_ended ? Reason::kLimit : Reason::kInfeasible;
    for (std::string& line : lack_of_memory(problem, *answer->nearest))
      outcome.why.push_back(std::move(line));
    if (answer->was_ended) outcome.why.push_back(kEnded);
    return outcome;
  }
  const double split = outcome.plan ? outcome.predicted_step.value : 0;
  if (kind_ == Kind::kAuto && outcome.plan && answer->best->step.value > split * (1 - kLeastGain)) {
    outcome.why.push_back(fmt::format(
        "the best sharding of operators found takes {}, which is no gain of {:.0f} %; none takes "
        "less than {}",
        format_seconds(answer->best->step), 100 * kLeastGain, format_seconds(answer->lower_bound)));
    set_reason(*answer, outcome);
    return outcome;
  }
  take(problem, **inquiry, outcome);
  if (split > 0)
    outcome.why.push_back(
        fmt::format("the best split of the batch alone takes {}", format_seconds(Seconds(split))));
  return outcome;
}

Result<std::unique_ptr<plan::Planner>> make_graph_planner(std::string_view name,
                                                          const graph::Graph& graph,
                                                          const Costs& costs) {
  using Kind = SpmdPlanner::Kind;
  for (const auto& [known, kind] : {std::pair{"spmd", Kind::kSpmd}, std::pair{"hap", Kind::kHap},
                                    std::pair{"auto", Kind::kAuto}})
    if (name == known) return std::make_unique<SpmdPlanner>(kind, graph, costs);
  return make_planner(name == "split" ? "auto" : name, {"spmd", "split", "hap"});
}

}  // namespace motley::search
