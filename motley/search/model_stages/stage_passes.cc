#include "motley/search/model_stages/stage_passes.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "motley/search/model_stages/finer_cuts.h"
#include "motley/search/model_stages/paired_stages.h"
#include "motley/search/stages/moved_cuts.h"

namespace motley::search {
namespace {

constexpr int kMemoryRounds = 4;  // of planning again with less memory
/// Part of the step for which the busiest stage waits.
constexpr double kWorthFilling = 0.03;
/// Of the best plan, that may be improved by gradients of weights put off.
constexpr double kWorthPuttingOff = 1.02, kWorthPuttingTurnsOff = 1.1;
constexpr std::size_t kMostPutOff = 2;
/// Plans whose passes are paired, by their time beside the best one's, and how many.
constexpr double kWorthPairingBeside = 1.1;
constexpr std::size_t kMostPaired = 2;
/// Layers are cut for the search where the best plan is so far from the bound.
constexpr double kWorthRefining = 1.05;
/// Plans whose cuts are moved into layers, their time beside the best's, and by how much that has
/// to be quicker for a program.
constexpr std::size_t kMostRefined = 3;
constexpr double kWorthRefiningCuts = 1.1, kWorthRepricing = 2e-3;
const CutMoves kPieceMoves{{8, 4, 2, 1}, 3, 1e-4, 200'000};

using Request = std::optional<StageRequest>;
using Candidates = std::vector<StageCandidate>;

std::vector<std::size_t> first_cuts(const PassInput& input) {
  if (input.cuts != StageCuts::kAtPieces) return input.costs.pieces().first;
  std::vector<std::size_t> all(input.costs.layers() + 1);
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

/// Nothing is recomputed but to fit.
Request plan_as_is(const PassInput& input) {
  return StageRequest{{}, first_cuts(input), kMemoryRounds};
}

/// What would fit if all forward passes were done again, and quick if none were.
Request plan_recomputed(const PassInput& input) {
  return StageRequest{{Recompute::kAll, Recompute::kNothing}, first_cuts(input)};
}

/// The same, slow as it is.
Request plan_all_recomputed(const PassInput& input) {
  if (input.outcome.plan) return std::nullopt;
  return StageRequest{{Recompute::kAll, Recompute::kAll}, first_cuts(input), kMemoryRounds};
}

/// Where layers are few or large: plans whose cuts lie in them, too.
Request plan_pieces(const PassInput& input) {
  const plan::PlanOutcome& outcome = input.outcome;
  if (input.problem.devices.size() < 2 ||
      (outcome.plan && outcome.predicted_step <= input.costs.least_step() * kWorthRefining))
    return std::nullopt;
  std::vector<std::size_t> cuts =
      find_finer_cuts(input.costs, input.costs.pieces(), input.problem.devices.size());
  if (cuts.empty()) return std::nullopt;
  return StageRequest{{lacks_memory(outcome) ? Recompute::kAll : Recompute::kNothing},
                      std::move(cuts),
                      outcome.plan ? 1 : kMemoryRounds};
}

/// Where nothing fits, or something is recomputed to fit: replicas that fit if they share states.
Request plan_shared_states(const PassInput& input) {
  const plan::Problem& problem = input.problem;
  if (!lacks_memory(input.outcome) || plan::count_states(problem.recipe) == 0 ||
      problem.devices.size() < 2 || problem.devices.size() > kMostSharing ||
      !problem.stages.empty())
    return std::nullopt;
  return StageRequest{{.shares_states = true}, first_cuts(input)};
}

/// Cuts of the best plans move to pieces of the layers beside them where that is quicker.
Candidates refine_cuts(const PassInput& input) {
  if (!input.outcome.plan || input.costs.layers() + 1 == input.costs.pieces().first.size())
    return {};
  Candidates moved;
  const StageEvaluator evaluator(input.sums);
  std::vector<StagePlan> seen;
  for (const TakenPlan& taken : fastest_first(input.taken)) {
    if (seen.size() >= kMostRefined ||
        taken.step > input.outcome.predicted_step * kWorthRefiningCuts)
      break;
    const StagePlan& plan = taken.found.plan;
    if (std::find(seen.begin(), seen.end(), plan) != seen.end()) continue;
    seen.push_back(plan);
    auto price = evaluator.price(plan);
    if (!price) continue;
    const Seconds before = price->step;
    PricedStagePlan finer{plan, *std::move(price)};
    move_cuts(evaluator, kPieceMoves, finer);
    // As much less as the simulator says, of what the program takes.
    const Seconds expected(finer.price.step.value * taken.step.value /
                           (before.value * (1 - kWorthRepricing)));
    moved.push_back({std::move(finer), std::nullopt, expected});
  }
  return moved;
}

/// A weight of two stages is one's so far. Where what is made of it crosses slowly both may have
/// it.
Candidates keep_tied(const PassInput& input) {
  if (!input.is_best || !input.apart || input.apart->plan == *input.outcome.plan) return {};
  return {{input.apart->found, input.apart->plan, std::nullopt}};
}

double busiest_stage(const PricedStagePlan& found) {
  double busiest = 0;
  for (std::size_t r = 0; r < found.plan.replicas.size(); ++r)
    for (const std::vector<std::size_t>& stages : stages_by_seat(found.plan.replicas[r])) {
      double busy = 0;
      for (const std::size_t s : stages) busy += found.price.spans[r][s].compute.value;
      busiest = std::max(busiest, busy);
    }
  return busiest;
}

/// Where the busiest stage of the best plans waits, gradients of weights may fill that.
Candidates put_weights_off(const PassInput& input) {
  Candidates made;
  if (!input.is_best) return made;
  const std::vector<TakenPlan> fastest = fastest_first(
      {input.taken.begin() + static_cast<std::ptrdiff_t>(input.first_new), input.taken.end()});
  // Interleaved or not: how many, and the fastest.
  std::array<std::pair<std::size_t, Seconds>, 2> tried;
  for (const auto& [found, given, step] : fastest) {
    const bool is_turned = is_interleaved(found.plan);
    auto& [count, least] = tried[is_turned ? 1 : 0];
    if (count == 0) least = is_turned ? fastest.front().step : step;
    if (step > least * (is_turned ? kWorthPuttingTurnsOff : kWorthPuttingOff)) continue;
    if (count++ >= kMostPutOff) continue;
    plan::Plan plan = given;
    for (plan::Replica& replica : plan.replicas)
      for (plan::Region& region : replica.regions) region.late_weights = replica.regions.size() > 1;
    if (plan != given && busiest_stage(found) <= found.price.step.value * (1 - kWorthFilling))
      made.push_back({found, std::move(plan), std::nullopt});
  }
  return made;
}

/// What messages make a stage wait for may be hidden by one more micro-batch under way than the
/// search's estimate of the order of passes has, if memory holds it.
Candidates begin_one_more(const PassInput& input) {
  if (!input.is_best || input.taken.empty() || !input.problem.stages.empty()) return {};
  const TakenPlan& best =
      *std::min_element(input.taken.begin(), input.taken.end(),
                        [](const TakenPlan& a, const TakenPlan& b) { return a.step < b.step; });
  plan::Plan plan = best.plan;
  for (plan::Replica& replica : plan.replicas)
    for (plan::Region& region : replica.regions)
      if (region.ahead > 0) region.ahead = std::min(replica.micro_batches, region.ahead + 1);
  return {{best.found, std::move(plan), std::nullopt}};
}

/// Where stages of several devices wait for what these exchange.
Candidates pair_tasks(const PassInput& input) {
  Candidates made;
  if (!input.is_best || !input.problem.stages.empty()) return made;
  const std::vector<TakenPlan> fastest = fastest_first(input.taken);
  std::size_t tried = 0;
  for (const auto& [found, given, step] : fastest) {
    const std::vector<WaitingStage> waiting = find_waiting(input.costs, found);
    if (step > fastest.front().step * kWorthPairingBeside || waiting.empty()) continue;
    if (tried++ >= kMostPaired) break;
    for (const MoreAhead more : kTriedAhead)
      made.push_back({found, pair_stages(given, waiting, more), std::nullopt});
  }
  return made;
}

/// A new pass is a line here. Those of whole layers come first, as if there were no others: so none
/// is worse for plans of pieces.
constexpr PlanningPass kPlanningPasses[] = {
    {.name = "fit", .search = plan_as_is},
    {.name = "recompute", .search = plan_recomputed},
    {.name = "recompute-all", .search = plan_all_recomputed},
    {.name = "keep-tied", .improve = keep_tied, .is_refining = true, .is_counted = false},
    {.name = "late-weights", .improve = put_weights_off, .is_refining = true, .is_counted = false},
    {.name = "pieces", .search = plan_pieces, .is_refining = true},
    {.name = "refine-cuts", .improve = refine_cuts, .is_refining = true},
    {.name = "share-states", .search = plan_shared_states},
    {.name = "keep-tied", .improve = keep_tied, .is_counted = false},
    {.name = "late-weights", .improve = put_weights_off, .is_counted = false},
    {.name = "one-more", .improve = begin_one_more},
    {.name = "pair-tasks", .improve = pair_tasks},
};

}  // namespace

std::span<const PlanningPass> planning_passes() { return kPlanningPasses; }

bool lacks_memory(const plan::PlanOutcome& outcome) {
  if (!outcome.plan) return true;
  for (const plan::Replica& replica : outcome.plan->replicas)
    for (const plan::Region& region : replica.regions)
      if (!region.recomputes.empty()) return true;
  return false;
}

}  // namespace motley::search
