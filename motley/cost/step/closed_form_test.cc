#include "motley/cost/step/closed_form.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <string>

#include "motley/testing/random_curves.h"

namespace motley::cost {
namespace {

using ::testing::ElementsAre;

// c = (3, 4), u = (1, 2): tails of the updates (3, 2), W_2 = 4 + 2, W_1 = 3 + max(3, 6).
TEST(ClosedForm, ExchangeTails) {
  StepCurves curves;
  curves.update = {1, 2};
  EXPECT_THAT(update_tails(curves), ElementsAre(3, 2));
  EXPECT_THAT(exchange_tails({3, 4}, {3, 2}), ElementsAre(9, 6));
}

// f is max(ready + 2, end): b = 1 takes max(1 + 2, 2) = 3, b = 3 takes max(3 + 2, 6) = 6.
TEST(ClosedForm, InverseOfAnExample) {
  StepCurves curves;
  curves.ready = {{{{0, 0}, {1, 1}}}};
  curves.end = {{{0, 0}, {1, 2}}};
  curves.update = {0};
  EXPECT_DOUBLE_EQ(step_seconds(curves, {2}, 1), 3);
  EXPECT_DOUBLE_EQ(step_seconds(curves, {2}, 3), 6);
  EXPECT_DOUBLE_EQ(largest_samples(curves, {2}, 3), 1);
  EXPECT_DOUBLE_EQ(largest_samples(curves, {2}, 6), 3);
  EXPECT_EQ(largest_samples(curves, {2}, 1.9), -std::numeric_limits<double>::infinity());
}

TEST(ClosedForm, InverseIsTheLargestSolution) {
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SplitMix64 random(seed);
    const StepCurves curves = random_step_curves(
        random, {.exchanges = random.below(4), .slowness = 0.2 + 2 * random.uniform()});
    std::vector<double> tails(curves.ready.size(), random.uniform());
    const double seconds = 5 * random.uniform();
    const double samples = largest_samples(curves, tails, seconds);
    if (!std::isfinite(samples)) continue;
    EXPECT_LE(step_seconds(curves, tails, samples - 1e-9), seconds + 1e-9);
    EXPECT_GE(step_seconds(curves, tails, samples + 1e-6), seconds - 1e-9);
  }
}

}  // namespace
}  // namespace motley::cost
