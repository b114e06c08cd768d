#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "motley/search/stages/interleaving.h"
#include "motley/search/stages/passes/improvers.h"

namespace motley::search {
namespace {

constexpr std::size_t kTurned = 6;  // plans that are interleaved
/// Micro-batches through stages that are simulated for it: about a third of a second.
constexpr std::int64_t kTurnedPasses = 300'000;

/// A plan to interleave, and what its step may then be at best.
struct Hope {
  Seconds step;
  StagePlan plan;
};

/// Replicas by units, micro-batch and samples.
std::vector<std::vector<std::int64_t>> key_of(const StagePlan& plan) {
  std::vector<std::vector<std::int64_t>> key;
  for (const StageReplica& replica : plan.replicas) {
    std::vector<std::int64_t>& of = key.emplace_back();
    for (const PlannedStage& stage : replica.stages)
      of.push_back(static_cast<std::int64_t>(stage.unit));
    of.push_back(replica.micro_batch);
    of.push_back(replica.samples);
  }
  return key;
}

/// Adds the plan, and the same in the fastest ways of its devices.
void offer(const Interleaving& interleaving, Seconds hope, const StagePlan& plan,
           std::vector<Hope>& hopes) {
  StagePlan fastest = plan;
  for (StageReplica& replica : fastest.replicas)
    replica = interleaving.in_fastest_ways(std::move(replica));
  hopes.push_back({hope, plan});
  if (fastest != plan) hopes.push_back({hope, std::move(fastest)});
}

void offer_priced(const Interleaving& interleaving, const PricedStagePlan& priced,
                  std::vector<Hope>& hopes) {
  Seconds passes, hope;
  bool has_stages = false;
  for (std::size_t r = 0; r < priced.plan.replicas.size(); ++r) {
    const StageReplica& replica = priced.plan.replicas[r];
    const Seconds last = priced.price.spans[r].front().last;
    passes = std::max(passes, last);
    hope = std::max(hope, interleaving.hope(replica, last));
    has_stages = has_stages || replica.stages.size() > 1;
  }
  if (has_stages) offer(interleaving, priced.price.step - passes + hope, priced.plan, hopes);
}

/// Most promising first.
std::vector<Hope> find_hopes(const ImproverInput& input, const Interleaving& interleaving) {
  std::vector<Hope> hopes;
  for (std::size_t i = input.first; i < input.plans.size(); ++i)
    offer_priced(interleaving, input.plans[i], hopes);
  const std::int64_t samples = input.space.question.global_batch;
  for (const ReplicaShape& shape : input.turned) {
    StagePlan plan{{replica_of(shape, samples)}};
    if (!has_full_ends(plan.replicas.front()) ||
        !place_stages(plan, input.space.costs, StagePlacing::kByStage))
      continue;
    const Seconds alone(input.estimates.estimate(shape, samples));
    offer(interleaving, interleaving.hope(plan.replicas.front(), alone), plan, hopes);
  }
  std::stable_sort(hopes.begin(), hopes.end(),
                   [](const Hope& a, const Hope& b) { return a.step < b.step; });
  return hopes;
}

/// Replicas that are identical get the same turns. Absent: none is faster in turns.
std::optional<StagePlan> interleave(StagePlan plan, Interleaving& interleaving) {
  std::map<std::pair<ReplicaShape, std::int64_t>, std::optional<StageReplica>> known;
  bool has_turned = false;
  for (StageReplica& replica : plan.replicas) {
    if (replica.stages.size() < 2) continue;
    const auto [at, is_new] = known.try_emplace({shape_of(replica), replica.samples});
    if (is_new) at->second = interleaving.find(replica);
    if (!at->second) continue;
    StageReplica made = *at->second;
    for (std::size_t s = 0; s < made.stages.size(); ++s) {
      const PlannedStage& seat = replica.stages[made.seats[s]];
      made.stages[s].host = seat.host;
      made.stages[s].slot = seat.slot;
      made.stages[s].more_slots = seat.more_slots;
    }
    replica = std::move(made);
    has_turned = true;
  }
  return has_turned ? std::optional(std::move(plan)) : std::nullopt;
}

}  // namespace

ImprovedPlans interleave_stages(const ImproverInput& input) {
  ImprovedPlans made;
  if (!input.space.can_interleave() || input.first == input.plans.size()) return made;
  Interleaving interleaving(input.space.evaluator, input.space.sums, kTurnedPasses);
  std::set<std::vector<std::vector<std::int64_t>>> seen;
  for (const Hope& hope : find_hopes(input, interleaving)) {
    if (seen.size() >= kTurned) break;
    if (!seen.insert(key_of(hope.plan)).second) continue;
    auto turned = interleave(hope.plan, interleaving);
    if (!turned) continue;
    ++made.simulated;
    auto price = input.space.evaluator.price(*turned);
    if (price && price->fits) made.plans.push_back({*std::move(turned), *std::move(price)});
  }
  made.simulated += interleaving.simulated();
  return made;
}

}  // namespace motley::search
