#include "motley/control/planning/survivors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/control/planning/mirroring.h"
#include "motley/control/planning/prediction.h"
#include "motley/graph/graph_text.h"
#include "motley/testing/fake_outside.h"
#include "motley/testing/small_inputs.h"
#include "motley/testing/wide_mlp.h"

namespace motley::control {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

/// Two 2048 x 2048 matrices under Adam on three GPUs: sharding them pays off with fast links.
class SurvivorsTest : public ::testing::Test {
 protected:
  Inputs make_inputs(int survive, const std::string& memory = "") const {
    graph::Model model;
    model.graph = graph::parse_graph(search::mlp_text(2048), "wide").value();
    model.hash = "wide";
    std::string text = "schema = \"motley.cluster/1\"\nname = \"three\"\n";
    for (const char* node : {"a", "b", "c"})
      text += fmt::format("[[node]]\nname = \"{}\"\n[[node.device]]\nkind = \"rtx4090\"\n{}", node,
                          memory.empty() ? "" : "memory = \"" + memory + "\"\n");
    text += "[[link]]\nall = true\nbandwidth = \"400Gbps\"\nlatency = \"5us\"\n";
    Inputs inputs;
    inputs.model_path = "wide.motley";
    inputs.model = std::make_shared<const graph::Model>(std::move(model));
    inputs.cluster = cluster::parse_cluster(text, "three").value();
    inputs.devices = cluster::all_devices(inputs.cluster);
    inputs.global_batch = 96;
    inputs.lowering.recipe.optimizer.kind = plan::OptimizerKind::kAdam;
    inputs.survive = survive;
    inputs.commits = survive > 0;
    return inputs;
  }

  Answer plan(Inputs& inputs, const std::string& planner = "auto", std::int64_t micro_batches = 0) {
    PlanChoices choices{.planner = planner, .micro_batches = micro_batches};
    choices.prices = {directory_.file("profiles.db"), Missing::kModel};
    auto answer = find_plan(inputs, choices, outside_);
    EXPECT_TRUE(answer) << answer.error().message;
    return *std::move(answer);
  }
  plan::Price price(const Inputs& inputs, const Answer& answer, const plan::Plan& plan) const {
    return price_to_run(inputs, answer.priced, lower_plan(inputs, plan).value()).value();
  }
  static bool outlives(const Inputs& inputs, const plan::Plan& plan) {
    return outlives_losses(inputs, {plan, nullptr}, inputs.survive).value();
  }

  TemporaryDirectory directory_;
  FakeWorkers workers_;
  FakeClock clock_;
  RecordingListener listener_;
  const Outside outside_{workers_, clock_, listener_};
};

TEST_F(SurvivorsTest, TheFastestIsAnotherOneWithMirrors) {
  Inputs bare = make_inputs(0), inputs = make_inputs(1);
  const Answer without = plan(bare), with = plan(inputs);
  ASSERT_TRUE(without.outcome.plan && with.outcome.plan);
  EXPECT_NE(*without.outcome.plan, *with.outcome.plan);
  EXPECT_TRUE(outlives(inputs, *with.outcome.plan));
  EXPECT_TRUE(outlives(inputs, *without.outcome.plan));  // with mirrors, which cost too much
  // Both use the same lowering and simulator.
  EXPECT_EQ(price(inputs, with, *with.outcome.plan).step, with.outcome.predicted_step);
  EXPECT_LT(with.outcome.predicted_step, price(inputs, with, *without.outcome.plan).step);
  EXPECT_GT(with.outcome.predicted_step, without.outcome.predicted_step);
  EXPECT_LE(with.outcome.lower_bound, with.outcome.predicted_step);
  EXPECT_THAT(with.outcome.why,
              Contains(AllOf(HasSubstr("the fastest without"), HasSubstr("takes longer then"))));
  const auto predicted = foresee(inputs, *with.outcome.plan, with.priced).value();
  EXPECT_EQ(predicted.seconds(), with.outcome.predicted_step);
  ASSERT_TRUE(predicted.mirrors);
  EXPECT_GE(predicted.mirrors->survives, 1);
}

TEST_F(SurvivorsTest, ALossOfMoreThanThereAreIsNotOutlived) {
  Inputs bare = make_inputs(0), inputs = make_inputs(3);
  EXPECT_FALSE(must_survive(inputs));
  EXPECT_EQ(*plan(inputs).outcome.plan, *plan(bare).outcome.plan);
}

TEST_F(SurvivorsTest, MemoryIsCountedWithMirrors) {
  Inputs bare = make_inputs(0);
  const Answer without = plan(bare);
  Bytes most;
  for (const auto& [device, peak] : without.outcome.peak) most = std::max(most, peak);
  // Memory for the plan, but not for its mirrors.
  Inputs inputs = make_inputs(1, std::to_string(most.value));
  EXPECT_FALSE(outlives(inputs, *without.outcome.plan));
  const Answer with = plan(inputs);
  ASSERT_TRUE(with.outcome.plan);
  for (const auto& [device, peak] : with.outcome.peak) EXPECT_LE(peak, most);
  const bool is_outlived = outlives(inputs, *with.outcome.plan);
  EXPECT_THAT(with.outcome.why, Contains(HasSubstr(is_outlived ? "any 1 of its devices may be lost"
                                                               : "no plan was found that")));
}

TEST_F(SurvivorsTest, AloneNobodyOutlivesALoss) {
  Inputs inputs = make_inputs(2);
  for (const char* planner : {"split", "spmd", "stages", "auto"}) {
    const Answer answer = plan(inputs, planner);
    ASSERT_TRUE(answer.outcome.plan) << planner;
    EXPECT_GT(plan::members(*answer.outcome.plan).size(), 2U) << planner;
    EXPECT_TRUE(outlives(inputs, *answer.outcome.plan)) << planner;
  }
}

TEST_F(SurvivorsTest, MicroBatchesThatAreAskedForStay) {
  Inputs inputs = make_inputs(2);
  for (const char* planner : {"split", "proportional", "auto"}) {
    const Answer answer = plan(inputs, planner, 4);
    ASSERT_TRUE(answer.outcome.plan) << planner;
    EXPECT_TRUE(outlives(inputs, *answer.outcome.plan)) << planner;
    for (const plan::Replica& replica : answer.outcome.plan->replicas)
      EXPECT_EQ(replica.micro_batches, 4) << planner;
  }
}

}  // namespace
}  // namespace motley::control
