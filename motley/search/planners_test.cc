#include "motley/search/planners.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "motley/base/file.h"
#include "motley/graph/graph_text.h"
#include "motley/testing/places.h"
#include "motley/testing/random_problem.h"
#include "motley/testing/test_name.h"

namespace motley::search {
namespace {

using plan::PlanOutcome;
using plan::Reason;
using ::testing::ElementsAre;

PlanOutcome run(std::string_view name, const ToyProblem& toy) {
  const auto planner = make_planner(name, toy.inputs());
  EXPECT_TRUE(planner.has_value());
  auto outcome = (*planner)->plan(toy.problem);
  EXPECT_TRUE(outcome.has_value()) << outcome.error().message;
  return std::move(*outcome);
}

std::vector<std::int64_t> samples_of(const PlanOutcome& outcome) {
  std::vector<std::int64_t> samples;
  for (const auto& replica : outcome.plan->replicas) samples.push_back(replica.samples);
  return samples;
}

void add_manual(ToyProblem& toy) {
  toy.problem.manual.assign(toy.problem.devices.size(), 0);
  toy.problem.manual.front() = toy.problem.global_batch / 2;
  toy.problem.manual.back() += toy.problem.global_batch - toy.problem.global_batch / 2;
}

std::vector<std::string> planner_names() {
  std::vector<std::string> names;
  for (const NamedPlanner& each : planners()) names.emplace_back(each.name);
  return names;
}

class PlannerContract : public ::testing::TestWithParam<std::string> {};

TEST_P(PlannerContract, Holds) {
  int feasible = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ToyProblem toy =
        random_problem(seed, {.ordered_updates = seed % 2 == 0, .one_link = seed % 3 != 0});
    add_manual(toy);
    toy.problem.seed = seed;
    const PlanOutcome outcome = run(GetParam(), toy);
    const PlanOutcome again = run(GetParam(), toy);
    EXPECT_EQ(outcome.plan, again.plan);
    EXPECT_EQ(outcome.why, again.why);
    EXPECT_EQ(outcome.considered, again.considered);
    EXPECT_EQ(outcome.planner, GetParam());
    EXPECT_FALSE(outcome.why.empty());
    if (!outcome.plan) {
      EXPECT_EQ(outcome.reason, Reason::kInfeasible);
      continue;
    }
    ++feasible;
    const auto verified = plan::verify_plan(*outcome.plan, toy.problem.model_hash, *toy.cluster);
    ASSERT_TRUE(verified.has_value()) << verified.error().message;
    EXPECT_EQ(outcome.plan->global_batch, toy.problem.global_batch);
    EXPECT_LE(outcome.lower_bound, outcome.predicted_step);
    EXPECT_GT(outcome.lower_bound.value, 0.0);
    EXPECT_DOUBLE_EQ(outcome.predicted_step.value, toy.evaluator->price(*outcome.plan)->step.value);
    ASSERT_EQ(outcome.peak.size(), outcome.plan->replicas.size());
    EXPECT_EQ(outcome.peak.size() + outcome.idle.size(), toy.problem.devices.size());
    for (const auto& [device, bytes] : outcome.peak) {
      const auto& memory = toy.cluster->device(device).memory;
      if (memory) {
        EXPECT_LE(bytes, *memory);
      }
    }
    for (const auto& replica : outcome.plan->replicas) {
      EXPECT_GE(replica.samples, toy.problem.min_samples);
      EXPECT_LE(replica.samples, toy.problem.max_samples);
    }
    const PlanOutcome best = run("auto", toy);
    ASSERT_TRUE(best.plan.has_value());
    EXPECT_LE(best.lower_bound.value, outcome.predicted_step.value * (1 + 1e-12));
    if (outcome.equal_split.fits) {
      EXPECT_LE(best.predicted_step, outcome.equal_split.step);
    }
    if (outcome.best_single.fits) {
      EXPECT_LE(best.predicted_step, outcome.best_single.step);
    }
    if (best.reason == Reason::kOptimal) {
      EXPECT_GE(outcome.predicted_step.value, best.predicted_step.value * (1 - 1e-4));
    }
  }
  EXPECT_GT(feasible, 40);
}

TEST_P(PlannerContract, RefusesAnEmptyProblem) {
  ToyProblem toy = random_problem(1, {});
  toy.problem.devices.clear();
  const auto outcome = (*make_planner(GetParam(), toy.inputs()))->plan(toy.problem);
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().message,
            "no device is left to plan for; exclude fewer of the cluster's");
}

TEST_P(PlannerContract, RefusesABatchOfNothing) {
  ToyProblem toy = random_problem(1, {});
  toy.problem.global_batch = 0;
  const auto outcome = (*make_planner(GetParam(), toy.inputs()))->plan(toy.problem);
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().message, "global batch 0: wanted at least 1 sample");
}

INSTANTIATE_TEST_SUITE_P(All, PlannerContract, ::testing::ValuesIn(planner_names()),
                         [](const auto& info) { return testing::test_name(info.param); });

TEST(MakePlanner, SuggestsAName) {
  const auto planner = make_planner("propotional", {});
  ASSERT_FALSE(planner.has_value());
  EXPECT_EQ(planner.error().message,
            "unknown planner 'propotional', wanted one of auto split spmd hap stages equal "
            "proportional manual random, did you mean 'proportional'?");
}

/// 1 s and 3 s per sample; the second has room for `room` samples of 1 GiB.
ToyProblem fast_and_slow(std::int64_t batch, std::optional<std::int64_t> room = {}) {
  ToyProblem toy;
  toy.group = no_exchange;
  toy.add_device(linear_device(1));
  TableEvaluator::Device slow = linear_device(3);
  slow.per_sample = Bytes(std::int64_t{1} << 30);
  std::optional<Bytes> memory;
  if (room) memory = Bytes(*room * (std::int64_t{1} << 30));
  toy.add_device(slow, memory);
  toy.finish(batch);
  return toy;
}

// 6 and 2 samples take 6 s on both; equal shares of 4 take 12 s; n0:0 alone 8 s.
TEST(Auto, ShowsAnswerBesideBaselines) {
  const ToyProblem toy = fast_and_slow(8);
  const PlanOutcome outcome = run("auto", toy);
  EXPECT_EQ(outcome.reason, Reason::kOptimal);
  EXPECT_THAT(samples_of(outcome), ElementsAre(6, 2));
  EXPECT_DOUBLE_EQ(outcome.predicted_step.value, 6);
  EXPECT_DOUBLE_EQ(outcome.lower_bound.value, 6);
  EXPECT_EQ(outcome.equal_split.label, "4:4");
  EXPECT_DOUBLE_EQ(outcome.equal_split.step.value, 12);
  EXPECT_TRUE(outcome.equal_split.fits);
  EXPECT_EQ(outcome.best_single.label, "n0:0");
  EXPECT_DOUBLE_EQ(outcome.best_single.step.value, 8);
  EXPECT_THAT(outcome.why, ElementsAre("n0:0 gets 6 of 8 samples: it is 3.0x as fast as n1:0",
                                       "n1:0 gets 2 of 8 samples",
                                       "binding: compute on all devices, balanced to 0.0 %"));
}

// Room for one sample on the slow device: 7 on the fast one take 7 s.
TEST(Auto, RespectsMemory) {
  const ToyProblem toy = fast_and_slow(8, 1);
  const PlanOutcome outcome = run("auto", toy);
  EXPECT_THAT(samples_of(outcome), ElementsAre(7, 1));
  EXPECT_FALSE(outcome.equal_split.fits);
  EXPECT_DOUBLE_EQ(outcome.equal_split.step.value, 12);
  EXPECT_THAT(outcome.why,
              ElementsAre("n0:0 gets 7 of 8 samples: it is 3.0x as fast as n1:0",
                          "n1:0 gets 1 of 8 samples", "n1:0 is full: 1 sample needs 1 GiB of 1 GiB",
                          "binding: compute on n0:0"));
}

TEST(Auto, SaysWhyADeviceIsIdle) {
  const ToyProblem toy = fast_and_slow(8, 0);
  const PlanOutcome outcome = run("auto", toy);
  EXPECT_THAT(outcome.idle, ElementsAre(DeviceId(1)));
  EXPECT_THAT(outcome.why, ElementsAre("n0:0 gets 8 of 8 samples",
                                       "n1:0 stays idle: 1 sample would need 1 GiB of its 0 B",
                                       "binding: compute on n0:0, which works alone"));
}

// 1 s per sample on both, 4.5 s of exchange: together 4 + 4.5 s, alone 8 s.
TEST(Auto, SaysWhatAnIdleDeviceWouldCost) {
  ToyProblem toy = pair_with_exchange(4.5);
  toy.finish(8);
  const PlanOutcome outcome = run("auto", toy);
  EXPECT_THAT(outcome.why,
              ElementsAre("n0:0 gets 8 of 8 samples",
                          "n1:0 stays idle: with it the step would take 500 ms longer (the "
                          "exchange 4.5 s more)",
                          "binding: compute on n0:0, which works alone"));
}

/// The devices have room for two and one samples of 1 GiB.
TEST(Infeasible, HasTheArithmetic) {
  ToyProblem toy;
  toy.group = no_exchange;
  TableEvaluator::Device device = linear_device(1);
  device.per_sample = Bytes(std::int64_t{1} << 30);
  toy.add_device(device, Bytes(std::int64_t{2} << 30));
  toy.add_device(device, Bytes(std::int64_t{1} << 30));
  toy.add_device(device, Bytes(std::int64_t{1} << 29));
  toy.finish(8);
  const PlanOutcome outcome = run("auto", toy);
  EXPECT_EQ(outcome.reason, Reason::kInfeasible);
  EXPECT_THAT(outcome.why,
              ElementsAre("n2:0 needs 1 GiB for 1 sample, has 512 MiB",
                          "together the devices hold 3 samples within their memory and the model's "
                          "limit of 4096, the global batch is 8: n0:0 2, n1:0 1, n2:0 0"));
}

TEST(Infeasible, BatchBelowTheLeast) {
  ToyProblem toy = fast_and_slow(2);
  toy.problem.min_samples = 4;
  EXPECT_THAT(run("auto", toy).why,
              ElementsAre("global batch 2 is smaller than the least batch of the model, 4"));
}

// Each device takes exactly 4 samples or none: one device has too few for 6, two need 8.
TEST(Infeasible, NoNumberOfDevicesDivides) {
  ToyProblem toy = fast_and_slow(6);
  toy.problem.min_samples = toy.problem.max_samples = 4;
  EXPECT_THAT(
      run("auto", toy).why,
      ElementsAre("no number of devices divides the global batch of 6: each takes 4 samples "
                  "or more and at most n0:0 4, n1:0 4"));
}

TEST(Equal, MoreDevicesThanSamples) {
  const ToyProblem toy = fast_and_slow(1);
  const PlanOutcome outcome = run("equal", toy);
  EXPECT_EQ(outcome.reason, Reason::kInfeasible);
  EXPECT_THAT(outcome.why,
              ElementsAre("global batch 1 is smaller than the number of devices, 2: an equal split "
                          "leaves 1 without a sample; use --exclude or --planner auto"));
}

TEST(Equal, DoesNotFit) {
  const ToyProblem toy = fast_and_slow(8, 3);
  EXPECT_THAT(run("equal", toy).why,
              ElementsAre("n1:0 needs 4 GiB for 4 samples, has 3 GiB: at most 3 fit"));
}

// Speeds 3 : 1: 8 samples are 6 and 2; of 9 the larger fraction gets the rest (6.75 and 2.25).
TEST(Proportional, FollowsSoloSpeed) {
  EXPECT_THAT(samples_of(run("proportional", fast_and_slow(8))), ElementsAre(6, 2));
  EXPECT_THAT(samples_of(run("proportional", fast_and_slow(9))), ElementsAre(7, 2));
}

TEST(Manual, TakesTheSplitAsGiven) {
  ToyProblem toy = fast_and_slow(8);
  toy.problem.manual = {8, 0};
  const PlanOutcome outcome = run("manual", toy);
  EXPECT_THAT(samples_of(outcome), ElementsAre(8));
  EXPECT_THAT(outcome.idle, ElementsAre(DeviceId(1)));
  EXPECT_EQ(outcome.reason, Reason::kFeasible);
  EXPECT_EQ(outcome.why.back(), "the step is 33.3 % above the lower bound of all splits");
}

TEST(Manual, WholeMessages) {
  ToyProblem toy = fast_and_slow(8);
  const auto message = [&](std::vector<std::int64_t> split) {
    toy.problem.manual = std::move(split);
    const auto outcome = (*make_planner("manual", toy.inputs()))->plan(toy.problem);
    return outcome ? "" : outcome.error().message;
  };
  EXPECT_EQ(message({8}), "batch split 8: found 1 numbers, wanted one for each device: n0:0, n1:0");
  EXPECT_EQ(message({4, 3}),
            "batch split 4,3: wanted numbers of 0 or more that sum to the global batch, 8");
  EXPECT_EQ(message({9, -1}),
            "batch split 9,-1: wanted numbers of 0 or more that sum to the global batch, 8");
}

// Two devices and 4 samples: 4:0, 0:4, 1:3, 2:2 and 3:1 are all splits.
TEST(Random, EverySplitCanCome) {
  ToyProblem toy = fast_and_slow(4);
  std::set<std::vector<std::int64_t>> seen;
  for (toy.problem.seed = 0; toy.problem.seed < 100; ++toy.problem.seed) {
    const PlanOutcome outcome = run("random", toy);
    std::vector<std::int64_t> split(2, 0);
    for (const auto& [device, samples] : plan::members(*outcome.plan)) {
      split[device.index()] = samples;
    }
    seen.insert(split);
  }
  EXPECT_EQ(seen.size(), 5u);
}

graph::Graph read_mlp() {
  const auto text = read_file(testing::source_path("tests/golden/synth/mlp.graph.txt"));
  return *graph::parse_graph(*text, "mlp");
}

/// Three devices and six samples of the MLP; `memory` of each device.
ToyProblem mlp_on_three(const graph::Graph& graph, std::optional<Bytes> memory = {}) {
  ToyProblem toy;
  toy.group = no_exchange;
  for (int i = 0; i < 3; ++i) toy.add_device(linear_device(i + 1), memory);
  toy.finish(6);
  toy.graph = &graph;
  return toy;
}

TEST(Random, DrawsSplitsAndRegions) {
  const graph::Graph graph = read_mlp();
  ToyProblem toy = mlp_on_three(graph);
  std::set<std::size_t> sizes;
  int regions = 0, stages = 0;
  for (toy.problem.seed = 0; toy.problem.seed < 100; ++toy.problem.seed) {
    const PlanOutcome outcome = run("random", toy);
    EXPECT_EQ(outcome.plan, run("random", toy).plan);
    ASSERT_TRUE(outcome.plan);
    EXPECT_TRUE(plan::verify_plan(*outcome.plan, toy.problem.model_hash, *toy.cluster));
    EXPECT_LE(outcome.lower_bound, outcome.predicted_step);
    stages += plan::has_stages(*outcome.plan) ? 1 : 0;
    if (plan::has_stages(*outcome.plan) || !plan::splits_operators(*outcome.plan)) continue;
    ++regions;
    const std::size_t devices = plan::members(*outcome.plan).size();
    sizes.insert(devices);
    EXPECT_EQ(outcome.peak.size(), devices);
    EXPECT_EQ(outcome.idle.size(), 3 - devices);
    EXPECT_THAT(outcome.why, ElementsAre(::testing::StartsWith("drawn: ")));
  }
  EXPECT_GT(regions, 35);
  EXPECT_LT(regions, 75);
  EXPECT_GT(stages, 15);
  EXPECT_EQ(sizes, (std::set<std::size_t>{2, 3}));
}

TEST(Random, RegionsFitIntoMemory) {
  const graph::Graph graph = read_mlp();
  ToyProblem roomy = mlp_on_three(graph);
  std::vector<std::int64_t> peaks;
  for (roomy.problem.seed = 0; roomy.problem.seed < 50; ++roomy.problem.seed)
    for (const auto& [device, bytes] : run("random", roomy).peak)
      if (bytes.value > 0) peaks.push_back(bytes.value);
  std::sort(peaks.begin(), peaks.end());
  const Bytes limit(peaks[peaks.size() / 2]);
  ToyProblem toy = mlp_on_three(graph, limit);
  int regions = 0;
  for (toy.problem.seed = 0; toy.problem.seed < 50; ++toy.problem.seed) {
    const PlanOutcome outcome = run("random", toy);
    if (!outcome.plan || !plan::splits_operators(*outcome.plan)) continue;
    ++regions;
    for (const auto& [device, bytes] : outcome.peak) EXPECT_LE(bytes, limit);
  }
  EXPECT_GT(regions, 0);
  ToyProblem tiny = mlp_on_three(graph, Bytes(16));
  tiny.problem.seed = 1;
  const PlanOutcome outcome = run("random", tiny);
  EXPECT_EQ(outcome.reason, Reason::kInfeasible);
  ASSERT_GT(outcome.why.size(), 1u);
  EXPECT_EQ(outcome.why[0], "20 ways to split the operators were drawn, none fits; of the last");
  EXPECT_THAT(outcome.why[1], ::testing::EndsWith(", has 16 B"));
}

TEST(Random, OperatorsAreSplitAtABatchOfTheModel) {
  const graph::Graph graph = read_mlp();
  ToyProblem toy = mlp_on_three(graph);
  toy.problem.max_samples = 4;
  toy.problem.seed = 1;
  EXPECT_THAT(run("random", toy).why,
              ElementsAre("operators are split at the global batch, which is 6; the model's "
                          "batches are 1 to 4"));
}

/// The simulator sees exchanges that the model does not: 2 s per sample on device 0.
class HeldUpEvaluator : public TableEvaluator {
 public:
  using TableEvaluator::TableEvaluator;
  Result<Seconds> step_time(const plan::Plan& plan) const override {
    double seconds = 0;
    for (const auto& [device, samples] : plan::members(plan)) {
      const double each = device == DeviceId(0) ? 2 : 3;
      seconds = std::max(seconds, each * static_cast<double>(samples));
    }
    return Seconds(seconds);
  }
};

// The model (1 s and 3 s per sample) splits 10 samples 7 : 3, at best 9 s. Simulated, it is 2 s and
// 3 s per sample, so 6 : 4 with 12 s is the best split.
TEST(Auto, GoesOnWithTheSimulatorWhereTheModelIsABoundOnly) {
  ToyProblem toy = fast_and_slow(10);
  toy.evaluator = std::make_unique<HeldUpEvaluator>(toy.tables, toy.group);
  const PlanOutcome outcome = run("auto", toy);
  EXPECT_THAT(samples_of(outcome), ElementsAre(6, 4));
  EXPECT_DOUBLE_EQ(outcome.predicted_step.value, 12);
  EXPECT_EQ(outcome.reason, Reason::kFeasible);
  EXPECT_LE(outcome.lower_bound.value, 9);
}

}  // namespace
}  // namespace motley::search
