#include "motley/adapt/learning_rate.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

namespace motley::adapt {
namespace {

TEST(LearningRate, FollowsTheRules) {
  // (200/50) (150 + 50) / (150 + 200) = 4 * 200 / 350.
  EXPECT_DOUBLE_EQ(lr_factor(LearningRateRule::kAdaScale, 200, 50, 150), 800.0 / 350);
  EXPECT_DOUBLE_EQ(lr_factor(LearningRateRule::kSquareRoot, 200, 50, 150), 2);
  EXPECT_DOUBLE_EQ(lr_factor(LearningRateRule::kLinear, 200, 50, 150), 4);
  EXPECT_DOUBLE_EQ(lr_factor(LearningRateRule::kNone, 200, 50, 150), 1);
}

RC_GTEST_PROP(LearningRate, GainIsBetweenOneAndTheRatioOfBatches, ()) {
  const double initial = *rc::gen::inRange(1, 1000);
  const double batch = initial + *rc::gen::inRange(0, 100000);
  const double noise = std::exp(0.1 * *rc::gen::inRange(-200, 300));
  const double gain = batch_gain(batch, initial, noise);
  RC_ASSERT(gain >= 1 - 1e-12);
  RC_ASSERT(gain <= batch / initial * (1 + 1e-12));
  // More noise gives more gain; a larger batch too, but less than in proportion.
  RC_ASSERT(batch_gain(batch, initial, 2 * noise) >= gain * (1 - 1e-12));
  RC_ASSERT(batch_gain(batch + 10, initial, noise) >= gain * (1 - 1e-12));
  RC_ASSERT(batch_gain(batch + 10, initial, noise) / (batch + 10) <= gain / batch * (1 + 1e-12));
}

TEST(LearningRate, HasTheLimitsOfTheGain) {
  EXPECT_EQ(batch_gain(400, 100, 0), 1);
  EXPECT_EQ(batch_gain(400, 100, std::numeric_limits<double>::infinity()), 4);
}

TEST(LearningRate, ChangesByBoundedFactors) {
  EXPECT_EQ(bounded_factor(1, 5, 2), 2);
  EXPECT_EQ(bounded_factor(4, 5, 2), 5);
  EXPECT_EQ(bounded_factor(4, 0.5, 2), 2);
}

TEST(LearningRate, KnowsItsRulesByName) {
  for (const auto rule : {LearningRateRule::kAdaScale, LearningRateRule::kSquareRoot,
                          LearningRateRule::kLinear, LearningRateRule::kNone})
    EXPECT_EQ(parse_rule(rule_name(rule), "--lr-rule").value(), rule);
  EXPECT_EQ(parse_rule("cubic", "--lr-rule").error().message,
            "--lr-rule: found learning-rate rule 'cubic', wanted one of adascale, sqrt, linear, "
            "none");
}

}  // namespace
}  // namespace motley::adapt
