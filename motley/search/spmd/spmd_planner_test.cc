#include "motley/search/spmd/spmd_planner.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/cost/profile_store.h"
#include "motley/graph/graph_text.h"
#include "motley/search/step_evaluator.h"
#include "motley/simulate/simulate.h"

namespace motley::search {
namespace {

/// A wide MLP: weights outweigh the samples.
std::string mlp_text(int width) {
  std::string text = fmt::format(
      "motley.graph/1\nname \"wide\"\nsize batch 1 4096\n"
      "input %0: f32[batch, {0}] \"x\"\nparam %1: f32[{0}, {0}] \"a\"\n"
      "param %2: f32[{0}, {0}] \"b\"\ntangent %3: f32[]\n"
      "op %4: f32[batch, {0}] = aten::mm(%0, %1) fwd \"first\"\n"
      "op %5: f32[batch, {0}] = aten::relu(%4) fwd \"first\"\n"
      "op %6: f32[batch, {0}] = aten::mm(%5, %2) fwd \"second\"\n"
      "op %7: f32[] = aten::sum(%6, none) fwd \"\"\n"
      "op %8: f32[batch, {0}] = aten::expand(%3, [size(batch), {0}], false) bwd \"\"\n"
      "op %9: f32[{0}, batch] = aten::t(%5) bwd \"second\"\n"
      "op %10: f32[{0}, {0}] = aten::mm(%9, %8) bwd \"second\"\n"
      "op %11: f32[{0}, {0}] = aten::t(%2) bwd \"second\"\n"
      "op %12: f32[batch, {0}] = aten::mm(%8, %11) bwd \"second\"\n"
      "op %13: f32[batch, {0}] = aten::threshold_backward(%12, %5, 0) bwd \"first\"\n"
      "op %14: f32[{0}, batch] = aten::t(%0) bwd \"first\"\n"
      "op %15: f32[{0}, {0}] = aten::mm(%14, %13) bwd \"first\"\n"
      "output loss %7\noutput gradient %15 of \"a\"\noutput gradient %10 of \"b\"\n",
      width);
  return text;
}

class SpmdPlannerTest : public testing::Test {
 protected:
  /// Two kinds behind a slow link, each with so much memory ("" = its own).
  void set_up(int width, const std::string& memory, std::int64_t batch = 64) {
    auto graph = graph::parse_graph(mlp_text(width), "wide");
    ASSERT_TRUE(graph) << graph.error().message;
    model_.graph = *std::move(graph);
    model_.hash = "wide";
    const std::string limit = memory.empty() ? "" : "memory = \"" + memory + "\"\n";
    auto cluster = cluster::parse_cluster(
        fmt::format(
            "schema = \"motley.cluster/1\"\nname = \"two\"\n"
            "[[node]]\nname = \"a\"\nhost = \"h1\"\n[[node.device]]\nkind = \"rtx4090\"\n{0}"
            "[[node]]\nname = \"b\"\nhost = \"h2\"\n[[node.device]]\nkind = \"rtx3090\"\n{0}"
            "[[link]]\nall = true\nbandwidth = \"10Gbps\"\nlatency = \"20us\"\n",
            limit),
        "two");
    ASSERT_TRUE(cluster) << cluster.error().message;
    cluster_ = *std::move(cluster);
    const auto store = cost::ProfileStore::open(":memory:");
    CostOptions options;
    options.torch = "2.15.0";
    options.global_batch = batch;
    options.devices = {DeviceId(0), DeviceId(1)};
    auto costs = load_costs(model_, cluster_, *store, options);
    ASSERT_TRUE(costs) << costs.error().message;
    costs_ = *std::move(costs);
    auto evaluator = StepEvaluator::make(model_.graph, cluster_, options.lowering, costs_);
    ASSERT_TRUE(evaluator) << evaluator.error().message;
    evaluator_ = *std::move(evaluator);
    problem_.cluster = &cluster_;
    problem_.evaluator = evaluator_.get();
    problem_.graph = &model_.graph;
    problem_.model_hash = model_.hash;
    problem_.global_batch = batch;
    problem_.devices = options.devices;
  }

  plan::PlanOutcome plan(const std::string& name) {
    const auto planner = make_graph_planner(name, model_.graph, costs_);
    const auto outcome = (*planner)->plan(problem_);
    EXPECT_TRUE(outcome) << outcome.error().message;
    return outcome ? *outcome : plan::PlanOutcome{};
  }

  graph::Model model_;
  cluster::Cluster cluster_;
  Costs costs_;
  std::unique_ptr<StepEvaluator> evaluator_;
  plan::Problem problem_;
};

TEST_F(SpmdPlannerTest, PlansAreValidAndPricedAsTheyAreSimulated) {
  set_up(4096, "");
  for (const char* name : {"spmd", "hap"}) {
    const plan::PlanOutcome outcome = plan(name);
    ASSERT_TRUE(outcome.plan) << name;
    EXPECT_TRUE(plan::verify_plan(*outcome.plan, model_.hash, cluster_)) << name;
    const auto program = synth::lower(model_.graph, *outcome.plan, cluster_);
    ASSERT_TRUE(program) << program.error().message;
    const auto trace = simulate::simulate(*program, costs_.model(cluster_));
    ASSERT_TRUE(trace) << trace.error().message;
    EXPECT_EQ(trace::median_step(*trace), outcome.predicted_step) << name;
    EXPECT_LE(outcome.lower_bound, outcome.predicted_step) << name;
  }
}

TEST_F(SpmdPlannerTest, BeatsSplitsOfTheBatchWhereWeightsAreLarge) {
  set_up(4096, "");
  const plan::PlanOutcome best = plan("auto"), split = plan("split");
  ASSERT_TRUE(best.plan && split.plan);
  EXPECT_LT(best.predicted_step.value, 0.98 * split.predicted_step.value);
  EXPECT_NE(plan::find_shared_region(*best.plan), nullptr);
  EXPECT_LE(best.predicted_step, plan("hap").predicted_step);
  EXPECT_THAT(best.why, testing::Contains(testing::HasSubstr("second: split by")));
}

TEST_F(SpmdPlannerTest, KeepsParametersInPartsWhereTheyDoNotFitWhole) {
  // Two weights of 1 GiB and their gradients; half of it and the framework fit.
  set_up(16384, "4GiB");
  EXPECT_FALSE(plan("split").plan);
  const plan::PlanOutcome outcome = plan("auto");
  ASSERT_TRUE(outcome.plan);
  for (const auto& [device, peak] : outcome.peak) EXPECT_LE(peak, *cluster_.device(device).memory);
}

TEST_F(SpmdPlannerTest, OneDeviceHasNothingToShare) {
  set_up(1024, "");
  problem_.devices = {DeviceId(0)};
  for (const char* name : {"spmd", "hap", "auto"}) {
    const plan::PlanOutcome outcome = plan(name);
    ASSERT_TRUE(outcome.plan) << name;
    EXPECT_EQ(plan::find_shared_region(*outcome.plan), nullptr) << name;
  }
}

TEST_F(SpmdPlannerTest, ShardsOverSeveralDevicesOnly) {
  for (const int width : {64, 512, 4096}) {
    set_up(width, "");
    const plan::PlanOutcome outcome = plan("spmd");
    ASSERT_TRUE(outcome.plan);
    EXPECT_TRUE(plan::verify_plan(*outcome.plan, model_.hash, cluster_));
    EXPECT_EQ(plan::members(*outcome.plan).size(), 2u) << width;
  }
}

TEST_F(SpmdPlannerTest, SaysWhatIsShortWhereNothingFits) {
  set_up(16384, "2GiB");
  const plan::PlanOutcome outcome = plan("spmd");
  EXPECT_FALSE(outcome.plan);
  EXPECT_EQ(outcome.reason, plan::Reason::kInfeasible);
  EXPECT_THAT(outcome.why, testing::Contains(testing::HasSubstr("short")));
}

}  // namespace
}  // namespace motley::search
