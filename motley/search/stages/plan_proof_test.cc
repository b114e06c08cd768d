#include "motley/search/stages/plan_proof.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "motley/search/stages/all_places.h"
#include "motley/search/stages/stage_search.h"
#include "motley/testing/rounds.h"
#include "motley/testing/table_stage_costs.h"

namespace motley::search {
namespace {

/// Finds the fastest of all plans of a batch in the simulator: every set of replica configurations,
/// division of samples, placement and schedule. It skips plans with a replica that cannot be faster
/// than `known`.
class EveryPlan {
 public:
  EveryPlan(const StageCosts& costs, std::int64_t batch, double known)
      : costs_(costs), batch_(batch), known_(known) {}

  /// Returns the best step; infinity if none is faster.
  double find_best() {
    for (const DevicePool& pool : costs_.pools()) left_.push_back(pool.devices);
    for (const std::int64_t micro : costs_.micro_batches()) list_replicas({{}, micro, micro});
    add_replica(0, batch_);
    return best_;
  }
  std::int64_t priced() const { return priced_; }
  /// Returns the largest ratio of the model's time to the step, over priced plans.
  double closest() const { return closest_; }

 private:
  bool take(const StageReplica& replica, int sign) {
    for (const PlannedStage& stage : replica.stages) {
      for (const UnitPart& part : costs_.units()[stage.unit].parts)
        left_[part.pool] -= sign * part.devices;
    }
    return std::all_of(left_.begin(), left_.end(), [](int count) { return count >= 0; });
  }

  bool uses_within(const StageReplica& replica) {
    const bool is_within = take(replica, 1);
    take(replica, -1);
    return is_within;
  }

  void list_replicas(const StageReplica& replica) {
    const std::size_t first = replica.stages.empty() ? 0 : replica.stages.back().end;
    if (first == costs_.layers()) return list_samples(replica);
    for (std::size_t unit = 0; unit < costs_.units().size(); ++unit)
      for (std::size_t end = first + 1; end <= costs_.layers(); ++end) {
        StageReplica longer = replica;
        longer.stages.push_back({first, end, unit});
        if (uses_within(longer)) list_replicas(longer);
      }
  }

  void list_samples(StageReplica replica) {
    for (; replica.samples <= batch_; ++replica.samples)
      if (has_full_ends(replica) && fits(replica) && model(replica) < known_)
        replicas_.push_back(replica);
  }
  double model(const StageReplica& replica) const {
    ReplicaShape shape{{}, replica.micro_batch};
    for (const PlannedStage& stage : replica.stages)
      shape.stages.push_back({stage.first, stage.end, stage.unit});
    return search_.seconds(shape, replica.samples);
  }
  /// Do 1F1B's micro-batches in flight fit?
  bool fits(const StageReplica& replica) const {
    const auto count = static_cast<std::int64_t>(micro_batch_sizes(replica).size());
    for (std::size_t s = 0; s < replica.stages.size(); ++s) {
      const auto& [first, end, unit, host, slot, more_slots] = replica.stages[s];
      const auto flying = std::min(count, static_cast<std::int64_t>(replica.stages.size() - s));
      if (sums_.bytes(unit, first, end).total(replica.micro_batch, flying) >
          sums_.memory(unit).value)
        return false;
    }
    return true;
  }

  void add_replica(std::size_t from, std::int64_t samples) {
    if (samples == 0) {
      visit_places(plan_, costs_, [&](const StagePlan& placed) {
        if (is_quick_alone(placed)) schedule(placed, 0);
        return true;
      });
      return;
    }
    for (std::size_t i = from; i < replicas_.size(); ++i) {
      // The last replica does the rest.
      const bool is_last =
          std::accumulate(left_.begin(), left_.end(), std::size_t{0}) == replicas_[i].stages.size();
      if (replicas_[i].samples > samples || (is_last && replicas_[i].samples < samples)) continue;
      if (take(replicas_[i], 1)) {
        plan_.replicas.push_back(replicas_[i]);
        add_replica(i, samples - replicas_[i].samples);
        plan_.replicas.pop_back();
      }
      take(replicas_[i], -1);
    }
  }

  bool is_quick_alone(StagePlan plan) {
    return std::all_of(plan.replicas.begin(), plan.replicas.end(), [&](StageReplica& replica) {
      return std::any_of(std::begin(kTriedSchedules), std::end(kTriedSchedules),
                         [&](StageSchedule tried) {
                           replica.schedule = tried;
                           return alone(replica) < known_;
                         });
    });
  }

  void schedule(StagePlan plan, std::size_t from) {
    if (from == plan.replicas.size()) return price(plan);
    for (const StageSchedule schedule_tried : kTriedSchedules) {
      plan.replicas[from].schedule = schedule_tried;
      if (alone(plan.replicas[from]) < known_) schedule(plan, from + 1);
    }
  }
  double alone(const StageReplica& replica) {
    std::vector<std::int64_t> key = {replica.micro_batch, replica.samples,
                                     static_cast<std::int64_t>(replica.schedule)};
    std::int64_t before = -1;
    for (const PlannedStage& stage : replica.stages) {
      const int first_host = costs_.pools()[costs_.units()[stage.unit].pool()].first_host;
      const std::int64_t host = first_host + stage.host;
      for (const std::size_t number : {stage.end, stage.unit, std::size_t{host == before}})
        key.push_back(static_cast<std::int64_t>(number));
      before = host;
    }
    const auto [at, is_new] = alone_.try_emplace(std::move(key), INFINITY);
    if (is_new)
      if (const auto seconds = evaluator_.pipeline(replica)) at->second = seconds->value;
    return at->second;
  }
  void price(const StagePlan& plan) {
    const auto price = evaluator_.price(plan);
    if (!price || !price->fits) return;
    ++priced_;
    if (price->step.value < known_) best_ = std::min(best_, price->step.value);
    for (const StageReplica& replica : plan.replicas)
      closest_ = std::max(closest_, model(replica) / price->step.value);
  }

  const StageCosts& costs_;
  std::int64_t batch_;
  double known_, best_ = INFINITY, closest_ = 0;
  StageSums sums_{costs_};
  ShapeSearch search_{sums_, {}};
  StageEvaluator evaluator_{sums_};
  std::vector<StageReplica> replicas_;
  std::vector<int> left_;
  StagePlan plan_;
  std::map<std::vector<std::int64_t>, double> alone_;
  std::int64_t priced_ = 0;
};

/// Checks that the result is a plan of the batch, reported as optimal, and not below its bound.
double verified_step(const StageOutcome& outcome, const StageCosts& costs, std::int64_t batch) {
  const double step = outcome.best->price.step.value;
  EXPECT_TRUE(verify_stage_plan(outcome.best->plan, costs));
  EXPECT_EQ(outcome.reason, StageReason::kOptimal);
  EXPECT_LE(outcome.lower_bound.value, step);
  std::int64_t samples = 0;
  for (const StageReplica& replica : outcome.best->plan.replicas) samples += replica.samples;
  EXPECT_EQ(samples, batch);
  return step;
}

/// Checks that the found plan is the best of all, without omissions for `every`, and that the model
/// bounds every plan. Adds the number of priced plans.
StageOutcome expect_best_of_all(TableStageCosts& costs, std::int64_t batch, int instance,
                                std::int64_t& priced) {
  costs.batches = {1, 2};
  EveryPlan every(costs, batch, INFINITY);
  const double best = every.find_best();
  auto outcome = find_stage_plan({.costs = &costs, .global_batch = batch, .interleaves = false});
  EXPECT_TRUE(outcome) << outcome.error().message;
  if (!outcome) return {};
  EXPECT_EQ(outcome->best.has_value(), std::isfinite(best)) << instance;
  EXPECT_LE(every.closest(), 1 + 1e-9) << instance;
  priced += every.priced();
  if (!outcome->best) return *outcome;
  EXPECT_NEAR(verified_step(*outcome, costs, batch), best, 1e-6 * best) << instance;
  EXPECT_LE(outcome->lower_bound.value, best * (1 + 1e-9)) << instance;
  return *std::move(outcome);
}

TEST(PlanProof, EqualsAllPlansOfThreeLayers) {
  std::mt19937_64 random(5);
  std::int64_t priced = 0;
  for (int i = 0; i < 60; ++i) {
    TableStageCosts costs = random_stage_costs(random, 3, 3);
    expect_best_of_all(costs, 5, i, priced);
  }
  EXPECT_GT(priced, 10'000);
}

TEST(PlanProof, EqualsAllPlansOfMixedHosts) {
  std::mt19937_64 random(7);
  std::int64_t priced = 0;
  int mixed = 0;
  for (int i = 0; i < 60; ++i) {
    TableStageCosts costs = random_mixed_costs(random, 3, 4);
    const StageOutcome outcome = expect_best_of_all(costs, 4, i, priced);
    if (!outcome.best) continue;
    for (const StageReplica& replica : outcome.best->plan.replicas)
      for (const PlannedStage& stage : replica.stages)
        mixed += costs.units()[stage.unit].is_mixed() ? 1 : 0;
  }
  EXPECT_GT(priced, 10'000);
  EXPECT_GT(mixed, 10);
}

TEST(PlanProof, NothingIsQuickerOfSixLayers) {
  std::mt19937_64 random(6);
  std::size_t compared = 0;
  const std::size_t rounds = testing::rounds(25, 200);
  for (std::size_t i = 0; i < rounds; ++i) {
    TableStageCosts costs = random_stage_costs(random, 6, 5);
    costs.batches = {1, 2};
    const auto batch = static_cast<std::int64_t>(3 + random() % 3);
    const auto outcome =
        find_stage_plan({.costs = &costs, .global_batch = batch, .interleaves = false});
    ASSERT_TRUE(outcome) << outcome.error().message;
    double known = 1e6;
    if (outcome->best) known = verified_step(*outcome, costs, batch) * (1 - 1e-6);
    EXPECT_TRUE(std::isinf(EveryPlan(costs, batch, known).find_best())) << i;
    compared += outcome->best ? 1 : 0;
  }
  EXPECT_GT(compared, 9 * rounds / 10);
}

// Two hosts of two devices: stages of two replicas side by side, or each replica in a host.
TEST(VisitPlaces, CountsIdenticalHostsOnce) {
  TableStageCosts costs = even_stage_costs(2, 1, 4);
  costs.device_pools[0].per_host = 2;
  const StageReplica replica{{{0, 1, 0}, {1, 2, 0}}, 1, 1};
  int places = 0;
  EXPECT_TRUE(visit_places({{replica, replica}}, costs, [&](const StagePlan& plan) {
    EXPECT_TRUE(verify_stage_plan(plan, costs));
    return ++places > 0;
  }));
  EXPECT_EQ(places, 3);
  EXPECT_FALSE(visit_places({{replica, replica}}, costs, [](const StagePlan&) { return false; }));
}

TEST(PlanProof, GivesUp) {
  const TableStageCosts costs = even_stage_costs(4, 2, 2);
  const StageSums sums(costs);
  const ShapeSearch search(sums, {});
  const StageEvaluator evaluator(sums);
  const ProofOutcome few = prove_plans(search, evaluator, {8, Seconds(100), 10});
  EXPECT_FALSE(few.is_complete);
  EXPECT_EQ(few.lower_bound, Seconds(0));
  const ProofOutcome all = prove_plans(search, evaluator, {8, Seconds(100)});
  EXPECT_TRUE(all.is_complete);
  EXPECT_TRUE(all.best);
  EXPECT_LE(all.lower_bound, all.best->price.step);
}

}  // namespace
}  // namespace motley::search
