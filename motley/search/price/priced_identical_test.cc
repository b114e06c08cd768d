#include "motley/search/price/priced_identical.h"

#include <gtest/gtest.h>

#include "motley/base/file.h"
#include "motley/graph/graph_text.h"
#include "motley/testing/invented_profile.h"
#include "motley/testing/places.h"

namespace motley::search {
namespace {

constexpr auto kShared = SplitEvaluator::Setting::kShared;

/// Three measured emulated devices, and some unmeasured ones.
class PricedIdenticalTest : public ::testing::Test {
 protected:
  PricedIdenticalTest()
      : profile_(graph::parse_graph(
                     *read_file(testing::source_path("tests/golden/synth/mlp.graph.txt")), "mlp")
                     .value(),
                 three_devices("emulated"), 64),
        cluster_(profile_.cluster()),
        costs_(profile_.costs()) {}

  DeviceId add(double speed, int threads = 1) {
    const auto node = static_cast<std::int64_t>(cluster_.nodes.size());
    const std::string name = "n" + std::to_string(node);
    cluster_.nodes.push_back({.name = name, .host = "h1"});
    cluster_.devices.push_back({.node = NodeId(node),
                                .name = name + ":0",
                                .kind = "cpu",
                                .threads = threads,
                                .speed = speed});
    return DeviceId(static_cast<std::int64_t>(cluster_.devices.size()) - 1);
  }
  std::unique_ptr<StepEvaluator> evaluator() {
    costs_.collectives.reach(static_cast<int>(costs_.devices.size()));
    auto made = StepEvaluator::make(profile_.model().graph, cluster_,
                                    {.bucket_bytes = Bytes(16 << 10)}, costs_);
    EXPECT_TRUE(made) << made.error().message;
    return std::move(*made);
  }

  InventedProfile profile_;
  cluster::Cluster cluster_;
  Costs costs_;
};

TEST_F(PricedIdenticalTest, TheMostIdenticalIsOfTheSameThreadsAndTheNearestSpeed) {
  EXPECT_EQ(find_identical(costs_, cluster_, add(0.75)), DeviceId(0));
  EXPECT_EQ(find_identical(costs_, cluster_, add(0.35)), DeviceId(1));
  EXPECT_EQ(find_identical(costs_, cluster_, add(0.1, 2)), DeviceId(2));
  EXPECT_EQ(find_identical(Costs(), cluster_, DeviceId(0)), std::nullopt);
}

TEST_F(PricedIdenticalTest, AStepTakesLongerByTheSpeeds) {
  const DeviceId same = add(0.4), half = add(0.2, 2), quick = add(0.8);
  price_identical(costs_, cluster_, same, DeviceId(1));
  price_identical(costs_, cluster_, half, DeviceId(1));   // 0.2 on two threads equals 0.4
  price_identical(costs_, cluster_, quick, DeviceId(1));  // twice as fast
  const auto evaluator = this->evaluator();
  const auto end = [&](DeviceId id) { return evaluator->curves(id, kShared).end.at(16); };
  EXPECT_NEAR(end(same), end(DeviceId(1)), 1e-12);
  EXPECT_NEAR(end(half), end(DeviceId(1)), 1e-12);
  EXPECT_NEAR(end(quick), end(DeviceId(1)) / 2, 1e-12);
  EXPECT_EQ(costs_.grounds.at("n5:0").text, "as b:0 at 2 times its speed");
}

TEST_F(PricedIdenticalTest, PlansWithItArePriced) {
  const DeviceId fourth = add(0.4);
  price_identical(costs_, cluster_, fourth, DeviceId(1));
  const auto evaluator = this->evaluator();
  plan::Plan plan{.model_hash = profile_.model().hash,
                  .cluster_hash = cluster::cluster_hash(cluster_),
                  .global_batch = 64,
                  .replicas = plan::make_replicas({DeviceId(0), DeviceId(1), DeviceId(2), fourth},
                                                  {28, 14, 8, 14})};
  plan.bucket_bytes = Bytes(16 << 10);
  const auto step = evaluator->step_time(plan);
  ASSERT_TRUE(step) << step.error().message;
  EXPECT_GT(step->value, 0);
}

}  // namespace
}  // namespace motley::search
