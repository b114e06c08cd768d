#include "motley/control/training/batches.h"

#include <gmock/gmock.h>

#include "motley/control/planning/slowed_split.h"
#include "motley/control/training/splits.h"
#include "motley/testing/small_question.h"

namespace motley::control {
namespace {

using ::testing::Each;

/// Two devices with four micro-batches a step (testing/fake_outside.h).
class BatchesTest : public SmallQuestionTest {
 protected:
  BatchesTest() : SmallQuestionTest(32) { choose({24, 8}, 4); }

  void choose(std::vector<std::int64_t> split, std::int64_t micro_batches) {
    auto chosen = choose_plan(question_,
                              {.prices = {.profiles = directory_.file("profiles.db")},
                               .manual = std::move(split),
                               .micro_batches = micro_batches},
                              outside_);
    ASSERT_TRUE(chosen) << chosen.error().message;
    chosen_ = *std::move(chosen);
  }

  std::shared_ptr<Adaptation> adapt(const BatchChoices& choices) const {
    auto made = adapt_batch(*chosen_, choices);
    EXPECT_TRUE(made) << made.error().message;
    return made ? *made : nullptr;
  }
  std::string why_not(const BatchChoices& choices) const {
    const auto made = adapt_batch(*chosen_, choices);
    return made ? "" : made.error().message;
  }

  std::unique_ptr<ChosenPlan> chosen_;
};

std::vector<std::int64_t> micro_batches_of_replicas(const Candidate& candidate) {
  std::vector<std::int64_t> counts;
  for (const plan::Replica& replica : candidate.planned.plan.replicas)
    counts.push_back(replica.micro_batches);
  return counts;
}

TEST_F(BatchesTest, KeepThePlansMicroBatches) {
  const auto made = adapt({.least = 30, .most = 101});
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(made->candidates[0].label, "32 samples, the batch split 24:8 in 4 micro-batches");
  EXPECT_THAT(micro_batches_of_replicas(made->candidates[0]), Each(4));
  // The limits, rounded inward, and a batch in multiples.
  EXPECT_EQ(made->least_batch, 32);
  EXPECT_EQ(made->batches->most, 100);
  const auto other = made->batch({{{"a:0", 28}, {"a:1", 16}}, 1.2});
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_EQ(other->planned.plan.global_batch, 44);
  EXPECT_FALSE(plan::has_stages(other->planned.plan));
  EXPECT_THAT(micro_batches_of_replicas(*other), Each(4));
  Candidate lowered = *other;
  ASSERT_TRUE(lower_candidate(chosen_->inputs, *made, lowered));
  EXPECT_EQ(lowered.planned.program->micro_batches, 4);
  EXPECT_THAT(micro_batches_of_replicas(*made->batch({{{"a:0", 36}}, 1})), Each(4));
  EXPECT_EQ(made->batch({{{"a:0", 28}, {"a:1", 13}}, 1}).error().message,
            "13 samples of a:1 are no multiple of 4 micro-batches");
}

// 24 samples are four passes of 6.
TEST_F(BatchesTest, BelieveWhatStepsInMicroBatchesTake) {
  const std::vector<adapt::DeviceLimits> limits = find_limits(*chosen_, 100);
  ASSERT_EQ(limits.size(), 2u);
  const double believed = limits[0].prior->curves.end.at(24);
  const cost::StepCurves& once =
      chosen_->priced.evaluator->curves(DeviceId(0), search::SplitEvaluator::Setting::kShared);
  EXPECT_NEAR(believed, 4 * once.end.at(6), 1e-9);
  EXPECT_EQ(limits[0].most, 100);
}

TEST_F(BatchesTest, SplitInMultiplesWhereADeviceIsGone) {
  const auto alone = find_split(*chosen_, {.gone = {"a:1"}, .batch = 44});
  ASSERT_TRUE(alone) << alone.error().message;
  EXPECT_EQ(*alone, (std::vector<policy::Share>{{"a:0", 44}}));
  EXPECT_EQ(find_split(*chosen_, {.batch = 45}).error().message,
            "45 samples cannot be divided into 4 equal micro-batches");
}

TEST_F(BatchesTest, OfASplitAreKept) {
  const auto made = adapt_split(*chosen_, std::nullopt, "motley");
  ASSERT_TRUE(made) << made.error().message;
  const auto other = (*made)->split({{"a:0", 20}, {"a:1", 12}});
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_EQ(other->label, "the batch split 20:12 in 4 micro-batches");
  EXPECT_THAT(micro_batches_of_replicas(*(*made)->split({{"a:0", 32}})), Each(4));
}

// A replanned split may be any; the batch stays, in multiples.
TEST_F(BatchesTest, PlanAgainInMultiples) {
  const auto made = adapt({});
  ASSERT_NE(made, nullptr);
  const Replan plain = [&](const std::vector<DeviceId>& devices, const BatchNow& now) {
    Candidate candidate{"plain", chosen_->planned};
    candidate.planned.plan.global_batch = now.samples;
    candidate.planned.plan.replicas =
        plan::make_replicas(devices, {now.samples - 9, std::int64_t{9}});
    return Result<Candidate>(std::move(candidate));
  };
  const auto again = replan_batch(*chosen_, *made, plain)(chosen_->inputs.devices, {44, 1.5});
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->label, "44 samples, the batch split 36:8 in 4 micro-batches");
  EXPECT_EQ(again->lr_factor, 1.5);
}

TEST_F(BatchesTest, SayWhatCannotBe) {
  EXPECT_EQ(
      why_not({.first_batch = 30}),
      "--adapt batch: 30 samples cannot be divided into 4 equal micro-batches, which the plan "
      "has; take a multiple");
  chosen_->planned.plan.replicas[0].samples = 23;
  chosen_->planned.plan.replicas[1].samples = 9;
  EXPECT_EQ(
      why_not({}),
      "--adapt batch goes with plans that split the batch alone, this one is: the batch split "
      "23:9 in unlike micro-batches; add --planner split");
}

// Alone, a device has two micro-batches; among others one.
TEST_F(BatchesTest, WithoutMicroBatchesAreOfAnySize) {
  choose({24, 8}, 0);
  const auto made = adapt({.least = 30, .most = 101});
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(made->least_batch, 30);
  EXPECT_EQ(made->batches->most, 101);
  EXPECT_THAT(micro_batches_of_replicas(*made->batch({{{"a:0", 28}, {"a:1", 13}}, 1})), Each(1));
  EXPECT_THAT(micro_batches_of_replicas(*made->batch({{{"a:0", 41}}, 1})), Each(2));
}

}  // namespace
}  // namespace motley::control
