#include "motley/search/layers/layer_plan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/base/random.h"
#include "motley/program/blocking_messages.h"
#include "motley/program/memory.h"
#include "motley/program/program_text.h"
#include "motley/search/stages/pipeline_stages.h"
#include "motley/simulate/simulate.h"
#include "motley/synth/lower.h"

namespace motley::search {
namespace {

constexpr const char *kFast = "a100-40g", *kSlow = "v100-16g";
constexpr std::int64_t kMessage = 8'000'000;  // bytes per sample

/// Layers that take 1 s forward and 2 s backward per sample on an A100, twice that on a V100, and
/// half at degree 2. A layer keeps 1000 bytes per sample and has 1000 bytes of weights.
cost::LayerProfile some_layers(std::size_t count, double update = 0) {
  cost::LayerProfile profile{.model = "some"};
  for (const auto& [kind, slower] : {std::pair(kFast, 1.0), std::pair(kSlow, 2.0)})
    for (const int degree : {1, 2})
      for (const std::int64_t micro : {1, 2, 4}) {
        const double pass = slower * static_cast<double>(micro) / degree;
        profile.times[kind][degree][micro].assign(
            count, {Seconds(pass), Seconds(2 * pass), Seconds(update / degree)});
      }
  for (const int degree : {1, 2})
    profile.sizes[degree].assign(count, {1, Bytes(1000 / degree), Bytes(4000 / degree),
                                         Bytes(1000 / degree), Bytes(kMessage)});
  return profile;
}

/// Returns a constant rate of this many devices together.
cost::RateCurves constant(int devices, double bytes_per_second) {
  return {{devices, {{0, 0, bytes_per_second * 1e-9}, BytesPerSecond(bytes_per_second)}}};
}

class LayerPlanTest : public ::testing::Test {
 protected:
  /// Sets up hosts of two A100, two A100 and two V100, with `between` bytes/s between them.
  void open(double between, std::size_t layers = 2, double update = 0) {
    for (const char* kind : {kFast, kSlow})
      for (const char* other : {kFast, kSlow})
        network_.between[{kind, other}] = constant(1, between);
    open_as_it_is(layers, update);
  }
  /// Sets up the hosts with the measured network.
  void open_as_it_is(std::size_t layers, double update = 0) {
    profile_ = some_layers(layers, update);
    for (auto& [degree, sizes] : profile_.sizes)
      for (cost::LayerSize& size : sizes) {
        size.gradients = Bytes(weights_ / degree);
        size.states = Bytes(4 * weights_ / degree);
        size.output = Bytes(message_);
      }
    for (const char* kind : {kFast, kSlow}) network_.inside[kind] = constant(1, 1e15);
    cluster_ = cluster::parse_cluster(R"(schema = "motley.cluster/1"
name = "four"
[[node]]
name = "n0"
[[node.device]]
kind = "a100-40g"
count = 2
memory = "1GiB"
[[node]]
name = "n1"
[[node.device]]
kind = "a100-40g"
count = 2
memory = "1GiB"
[[node]]
name = "n2"
[[node.device]]
kind = "v100-16g"
count = 2
memory = "1GiB"
)",
                                      "four")
                   .value();
    pools_ = find_pools(cluster_).value();
    hops_ = fitted_hops(network_, pools_.pools);
    costs_ = std::make_unique<LayerStageCosts>(
        LayerStageCosts::make(profile_, pools_.pools, hops_, runtime_).value());
    model_ = make_layer_model(profile_).value();
  }
  std::size_t unit(const char* kind, int degree) const {
    return costs_->find_unit(kind, degree).value();
  }
  PricedStagePlan priced(StagePlan plan) const {
    const StageSums sums(*costs_);
    auto price = StageEvaluator(sums).price(plan);
    EXPECT_TRUE(price) << price.error().message;
    return {std::move(plan), price.value_or(StagePrice{})};
  }
  program::Program lower(const PricedStagePlan& found) {
    auto plan = write_layer_plan(found, *costs_, pools_, cluster_, model_);
    EXPECT_TRUE(plan) << plan.error().message;
    plan_ = *plan;
    EXPECT_EQ(plan::parse_plan(plan::print_plan(plan_, cluster_), "p", cluster_).value(), plan_);
    auto program = synth::lower(model_.layers.graph, plan_, cluster_);
    EXPECT_TRUE(program) << program.error().message;
    const auto verified = program::verify_program(*program, "p");
    EXPECT_TRUE(verified) << verified.error().message;
    return std::move(*program);
  }
  LayerCost cost() const {
    return {std::make_shared<const cost::LayerProfile>(profile_),
            model_.layers.rows,
            pools_.pools,
            hops_,
            runtime_,
            find_layer_seats(plan_, pools_, cluster_).value()};
  }
  double simulated(const program::Program& program) const {
    const auto trace = simulate::simulate(program, cost());
    EXPECT_TRUE(trace) << trace.error().message;
    return trace ? trace::median_step(*trace).value : 0;
  }
  double step(const StagePlan& plan) { return simulated(lower(priced(plan))); }

  std::int64_t weights_ = 1000, message_ = kMessage;  // bytes per layer
  StageRuntime runtime_{.copies_gradients = false};
  cost::LayerProfile profile_;
  cost::StageNetwork network_;
  cluster::Cluster cluster_;
  ClusterPools pools_;
  std::shared_ptr<const HopCosts> hops_;
  std::unique_ptr<LayerStageCosts> costs_;
  LayerModel model_;
  plan::Plan plan_;
};

// As derived in stage_evaluator_test.cc for free, overlapped and blocking half-second messages.
TEST_F(LayerPlanTest, TwoStagesTakeWhatTheirPassesSay) {
  open(1e15);
  const StagePlan plan{{{{{0, 1, unit(kFast, 1), 0, 0}, {1, 2, unit(kFast, 1), 1, 0}}, 1, 2}}};
  EXPECT_NEAR(step(plan), 9, 1e-5);
  open(2 * kMessage);
  const program::Program program = lower(priced(plan));
  EXPECT_NEAR(simulated(program), 10, 1e-5);
  const auto blocking = program::block_messages(program);
  ASSERT_TRUE(blocking) << blocking.error().message;
  EXPECT_NEAR(simulated(*blocking), 11, 1e-5);
}

// Three micro-batches, three stages, blocking half-second messages; the evaluator's own waits.
TEST_F(LayerPlanTest, BlockingMessagesAreThoseOfTheEvaluator) {
  runtime_ = blocking_runtime();
  open(2 * kMessage, 3);
  const StagePlan plan{
      {{{{0, 1, unit(kFast, 1), 0, 0}, {1, 2, unit(kSlow, 1), 0, 0}, {2, 3, unit(kFast, 1), 1, 0}},
        1,
        6}}};
  const PricedStagePlan found = priced(plan);
  const auto blocking = program::block_messages(lower(found));
  ASSERT_TRUE(blocking) << blocking.error().message;
  EXPECT_NEAR(simulated(*blocking), found.price.step.value, 1e-3 * found.price.step.value);
}

// Two devices that share layers take half the time and send a part of the message each; receivers
// take a quarter of a second for each part. Transfers inside a host are free here.
TEST_F(LayerPlanTest, DevicesThatShareLayersHaveTheirTimesAndBytes) {
  open(1e15);
  EXPECT_NEAR(step({{{{{0, 1, unit(kFast, 2), 0, 0}, {1, 2, unit(kFast, 2), 1, 0}}, 1, 2}}}), 4.5,
              1e-5);
  open(2 * kMessage);
  const program::Program program =
      lower(priced({{{{{0, 1, unit(kFast, 2), 0, 0}, {1, 2, unit(kFast, 2), 1, 0}}, 1, 2}}}));
  // One message at half the rate for each of two devices takes half a second. Stage 0: F0 0-0.5, F1
  // 0.5-1. Stage 1: F0 1-1.5, B0 1.5-2.5; F1 2.5-3, B1 3-4. Stage 0: B0 3-4, B1 4.5-5.5.
  EXPECT_NEAR(simulated(program), 5.5, 1e-5);
  // Weights, gradients and both moments of half a layer.
  const program::MemoryPeak peak = program::find_memory_peak(program.devices[0]);
  EXPECT_NEAR(static_cast<double>(peak.parameters.value), 500, 16);
  EXPECT_NEAR(static_cast<double>(peak.states.value), 1000, 32);
}

// Two replicas of 4 and 2 samples on different kinds: 12 s on both, then the free sum of 2000
// bytes, and the update of both layers, a quarter of a second each.
TEST_F(LayerPlanTest, ReplicasDifferAndUpdate) {
  open(1e15, 2, 0.25);
  const StagePlan plan{
      {{{{0, 2, unit(kFast, 1), 0, 0}}, 1, 2}, {{{0, 2, unit(kSlow, 1), 0, 0}}, 1, 1}}};
  EXPECT_NEAR(step(plan), 12.5, 1e-5);
  EXPECT_TRUE(plan::has_stages(plan_));
  EXPECT_EQ(plan_.global_batch, 3);
}

// Twelve seconds of passes, and two forward passes of a recomputed layer.
TEST_F(LayerPlanTest, StagesMayDoForwardsAgain) {
  runtime_.may_recompute = true;
  open(1e15);
  const auto& units = costs_->units();
  const auto again = static_cast<std::size_t>(
      std::find(units.begin(), units.end(), StageUnit{0, 1, true}) - units.begin());
  EXPECT_NEAR(step({{{{{0, 2, again, 0, 0}}, 1, 2}}}), 16, 1e-5);
  EXPECT_EQ(plan_.replicas[0].regions[0].recomputes, (std::vector<plan::OpRange>{{0, 1}, {2, 3}}));
}

TEST_F(LayerPlanTest, PartsThatNobodyProfiledAreRefused) {
  open(1e15);
  program::Program program = lower(priced({{{{{0, 2, unit(kFast, 2), 0, 0}}, 1, 2}}}));
  profile_.times[kFast].erase(2);
  EXPECT_THAT(simulate::simulate(program, cost()).error().message,
              ::testing::HasSubstr("some on a100-40g was not profiled at tp 2"));
}

// One replica is cut into layers 0 and 1, 2 and 3, the other into 0, and 1, 2 and 3. In layer order
// their sums of half a minute would form a chain of four; two at a time can run.
TEST_F(LayerPlanTest, SumsOfReplicasThatAreCutDifferentlyGoOnSideBySide) {
  weights_ = 240'000'000;
  message_ = 800'000;
  for (const char* kind : {kFast, kSlow})
    for (const char* other : {kFast, kSlow})
      network_.between[{kind, other}] = {{1, {{0, 0, 8e-3}, BytesPerSecond(1e9)}}};
  open_as_it_is(4);
  const StagePlan plan{
      {{{{0, 2, unit(kSlow, 1), 0, 0}, {2, 4, unit(kSlow, 1), 0, 1}}, 1, 1},
       {{{0, 1, unit(kFast, 1), 0, 0}, {1, 3, unit(kFast, 1), 0, 1}, {3, 4, unit(kFast, 1), 1, 0}},
        1,
        1}}};
  const PricedStagePlan found = priced(plan);
  const double step = simulated(lower(found));
  // The slow replica's passes end at 24 s with layer 0; layer 1 is ready at 20 s. The evaluator
  // starts all sums after the last pass.
  EXPECT_NEAR(step, 20 + 60, 0.3);
  EXPECT_NEAR(found.price.step.value, 24 + 60, 0.3);
}

/// Draws a plan of all devices: any cuts, one or two replicas, one or two devices per stage.
class DrawnLayers : public LayerPlanTest, public ::testing::WithParamInterface<int> {};

// The evaluator estimates programs: sums after all passes, whole micro-batches.
TEST_P(DrawnLayers, ProgramsTakeWhatTheEvaluatorSays) {
  SplitMix64 random(static_cast<std::uint64_t>(GetParam()));
  const auto below = [&](std::uint64_t n) { return random.below(n); };
  open(kMessage * (below(2) == 0 ? 1e6 : 4.0), 6, 0.1);
  StagePlan plan;
  for (std::size_t r = 0, replicas = 1 + below(2); r < replicas; ++r) {
    StageReplica& replica = plan.replicas.emplace_back();
    replica.micro_batch = 1 + static_cast<std::int64_t>(below(2));
    replica.samples = replica.micro_batch * static_cast<std::int64_t>(1 + below(6));
    // The first replica has the A100 hosts, the second the V100 host.
    const char* kind = r == 0 ? kFast : kSlow;
    for (int host = 0; host < (r == 0 ? 2 : 1); ++host)
      if (below(2) == 0)
        replica.stages.push_back({0, 0, unit(kind, 2), host, 0});
      else
        for (const int slot : {0, 1}) replica.stages.push_back({0, 0, unit(kind, 1), host, slot});
    std::vector<std::size_t> cuts{0, 6};
    while (cuts.size() <= replica.stages.size())
      if (const std::size_t cut = 1 + below(5);
          std::find(cuts.begin(), cuts.end(), cut) == cuts.end())
        cuts.insert(std::upper_bound(cuts.begin(), cuts.end(), cut), cut);
    for (std::size_t i = 0; i < replica.stages.size(); ++i) {
      replica.stages[i].first = cuts[i];
      replica.stages[i].end = cuts[i + 1];
    }
    const StageSums sums(*costs_);
    ASSERT_TRUE(StageEvaluator(sums).choose_schedule(replica));
  }
  const PricedStagePlan found = priced(plan);
  const double step = simulated(lower(found));
  EXPECT_NEAR(step, found.price.step.value, 0.02 * step) << plan::print_plan(plan_, cluster_);
}
INSTANTIATE_TEST_SUITE_P(Seeds, DrawnLayers, ::testing::Range(0, 40));

}  // namespace
}  // namespace motley::search
