#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/search/planners.h"
#include "motley/simulate/simulate.h"
#include "motley/testing/wide_mlp.h"

namespace motley::search {
namespace {

class SpmdPlannerTest : public WideMlpTest {
 protected:
  plan::PlanOutcome plan(const std::string& name) {
    const auto planner = make_planner(name, evaluator_->inputs());
    const auto outcome = (*planner)->plan(problem_);
    EXPECT_TRUE(outcome) << outcome.error().message;
    return outcome ? *outcome : plan::PlanOutcome{};
  }
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
  EXPECT_TRUE(plan::splits_operators(*best.plan));
  EXPECT_LE(best.predicted_step, plan("hap").predicted_step);
  EXPECT_THAT(best.why, ::testing::Contains(::testing::HasSubstr("second: split by")));
}

TEST_F(SpmdPlannerTest, KeepsParametersInPartsWhereTheyDoNotFitWhole) {
  // Two weights of 1 GiB and their gradients; half of it and the framework fit.
  set_up(16384, "4GiB");
  EXPECT_FALSE(plan("split").plan);
  const plan::PlanOutcome outcome = plan("auto");
  ASSERT_TRUE(outcome.plan);
  for (const auto& [device, peak] : outcome.peak) EXPECT_LE(peak, *cluster_.device(device).memory);
}

TEST_F(SpmdPlannerTest, TakesMicroBatchesWhereActivationsDoNotFit) {
  // Beside the framework's 512 MiB: 16 MiB of weights and gradients, 16 MiB for each activation.
  set_up(1024, "555MiB", 4096);
  const plan::PlanOutcome outcome = plan("auto");
  ASSERT_TRUE(outcome.plan);
  EXPECT_TRUE(plan::verify_plan(*outcome.plan, model_.hash, cluster_));
  EXPECT_GT(outcome.plan->replicas[0].micro_batches, 1);
  for (const auto& [device, peak] : outcome.peak) EXPECT_LE(peak, *cluster_.device(device).memory);
  EXPECT_LE(outcome.lower_bound, outcome.predicted_step);
  const auto program = synth::lower(model_.graph, *outcome.plan, cluster_);
  ASSERT_TRUE(program) << program.error().message;
  const auto trace = simulate::simulate(*program, costs_.model(cluster_));
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace::median_step(*trace), outcome.predicted_step);
  EXPECT_THAT(outcome.why, ::testing::Contains(::testing::HasSubstr("micro-batches")));
}

TEST_F(SpmdPlannerTest, GivesWhatItHasAtTheTimeLimit) {
  set_up(4096, "");
  const plan::PlanOutcome best = plan("spmd");
  problem_.time_limit = Seconds(0);
  for (const char* name : {"spmd", "auto"}) {
    const plan::PlanOutcome outcome = plan(name);
    ASSERT_TRUE(outcome.plan) << name;
    EXPECT_EQ(outcome.reason, plan::Reason::kLimit) << name;
    EXPECT_TRUE(plan::verify_plan(*outcome.plan, model_.hash, cluster_)) << name;
    EXPECT_LT(outcome.considered, best.considered) << name;
    EXPECT_GT(outcome.lower_bound.value, 0) << name;
    EXPECT_LE(outcome.lower_bound, best.predicted_step) << name;
    EXPECT_GE(outcome.predicted_step, best.predicted_step) << name;
    EXPECT_THAT(outcome.why, ::testing::Contains(::testing::HasSubstr("time limit"))) << name;
  }
  problem_.time_limit = Seconds(3600);
  const plan::PlanOutcome unhurried = plan("spmd");
  EXPECT_EQ(unhurried.plan, best.plan);
  EXPECT_EQ(unhurried.reason, best.reason);
}

TEST_F(SpmdPlannerTest, MayFindNothingThatFitsWithinTheTimeLimit) {
  set_up(1024, "555MiB", 4096);  // only micro-batches fit, which are tried last
  problem_.time_limit = Seconds(0);
  const plan::PlanOutcome outcome = plan("spmd");
  EXPECT_FALSE(outcome.plan);
  EXPECT_EQ(outcome.reason, plan::Reason::kLimit);
  EXPECT_THAT(outcome.why, ::testing::Contains(::testing::HasSubstr("time limit")));
}

TEST_F(SpmdPlannerTest, OneDeviceHasNothingToShare) {
  set_up(1024, "");
  problem_.devices = {DeviceId(0)};
  for (const char* name : {"spmd", "hap", "auto"}) {
    const plan::PlanOutcome outcome = plan(name);
    ASSERT_TRUE(outcome.plan) << name;
    EXPECT_FALSE(plan::splits_operators(*outcome.plan)) << name;
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
  EXPECT_THAT(outcome.why, ::testing::Contains(::testing::HasSubstr("short")));
}

}  // namespace
}  // namespace motley::search
