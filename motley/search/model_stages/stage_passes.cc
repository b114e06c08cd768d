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

constexpr int kMemoryRounds = 4;  // searches, each with less memory than the one before
/// Least part of the step for which the busiest stage waits, if deferred weight gradients may fill
/// it.
constexpr double kWorthFilling = 0.03;
/// Largest step, over the fastest one's, of plans that get deferred weight gradients; the second is
/// for interleaved stages.
constexpr double kWorthPuttingOff = 1.02, kWorthPuttingTurnsOff = 1.1;
constexpr std::size_t kMostPutOff = 2;
/// Largest step, over the fastest one's, of plans that get paired passes, and how many plans.
constexpr double kWorthPairingBeside = 1.1;
constexpr std::size_t kMostPaired = 2;
/// Least step, over the bound, at which the search also cuts inside layers.
constexpr double kWorthRefining = 1.05;
/// How many plans get their cuts moved into layers, their largest step over the fastest one's, and
/// the least gain for which a program is priced.
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

/// Recomputes only what must be recomputed to fit.
Request plan_as_is(const PassInput& input) {
  return StageRequest{{}, first_cuts(input), kMemoryRounds};
}

/// Takes memory as if all forward passes were recomputed, and time as if none were.
Request plan_recomputed(const PassInput& input) {
  return StageRequest{{Recompute::kAll, Recompute::kNothing}, first_cuts(input), kMemoryRounds};
}

/// Recomputes all forward passes, in memory and time. For models that fit in no other way.
Request plan_all_recomputed(const PassInput& input) {
  if (input.outcome.plan) return std::nullopt;
  return StageRequest{{Recompute::kAll, Recompute::kAll}, first_cuts(input), kMemoryRounds};
}

/// Also cuts inside layers, where layers are few or large.
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

/// Searches replicas with sharded optimizer states, where nothing fits or something is recomputed.
Request plan_shared_states(const PassInput& input) {
  const plan::Problem& problem = input.problem;
  if (!lacks_memory(input.outcome) || plan::count_states(problem.recipe) == 0 ||
      problem.devices.size() < 2 || problem.devices.size() > kMostSharing ||
      !problem.stages.empty())
    return std::nullopt;
  return StageRequest{{.shares_states = true}, first_cuts(input)};
}

/// Moves cuts of the best plans to pieces of the neighbouring layers, if that is faster.
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
    // The program gains the part that the simulated step gains.
    const Seconds expected(finer.price.step.value * taken.step.value /
                           (before.value * (1 - kWorthRepricing)));
    moved.push_back({std::move(finer), std::nullopt, expected});
  }
  return moved;
}

/// Lets both stages keep a tied weight, which one of them has so far: faster over slow links.
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

/// Defers weight gradients in the best plans whose busiest stage waits: they fill its gaps.
Candidates put_weights_off(const PassInput& input) {
  Candidates made;
  if (!input.is_best) return made;
  const std::vector<TakenPlan> fastest = fastest_first(
      {input.taken.begin() + static_cast<std::ptrdiff_t>(input.first_new), input.taken.end()});
  // By whether stages are interleaved: how many plans, and the fastest step.
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

/// Lets one more micro-batch be in flight than the search estimated, to hide messages; memory is
/// checked by the program's price.
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

/// Pairs passes in stages of several devices that wait for their own collectives.
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

/// The passes in order; a new one is a line here. Whole layers come first, so plans of pieces never
/// make the answer worse.
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
