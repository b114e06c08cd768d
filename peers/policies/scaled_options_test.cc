#include "peers/policies/scaled_options.h"

#include <gtest/gtest.h>

#include "motley/base/json.h"

namespace motley::peers {
namespace {

std::vector<adapt::BatchOption> one_and_both() {
  const adapt::DeviceCurve a{"a", {{0, 0.1}, {100, 1.1}}}, b{"b", {{0, 0.1}, {100, 2.1}}};
  return {{"a", {a}, {.tail = Seconds(0)}, 1}, {"a, b", {a, b}, {.tail = Seconds(0.2)}, 2}};
}

policy::StepSeen step_of(double a, double b, double took) {
  return {.took = Seconds(took),
          .global_batch = 30,
          .devices = {{"a", 20, {}, a, {}}, {"b", 10, {}, b, {}}}};
}

TEST(ScaledOptions, AreCorrectedByTheMedianOfWhatIsSeen) {
  ScaledOptions source = ScaledOptions::make(one_and_both()).value();
  // a: 0.3 s given for 20 samples, seen 0.6; b: 0.3 for 10, seen 0.3. Tail: 0.2 given, 0.4 seen.
  source.observe(step_of(0.6, 0.3, 1.0));
  EXPECT_EQ(source.version(), 1);
  EXPECT_NEAR(adapt::work_seconds(source.options()[0].devices[0], 20), 0.6, 1e-12);
  EXPECT_NEAR(adapt::work_seconds(source.options()[1].devices[1], 10), 0.3, 1e-12);
  EXPECT_NEAR(source.options()[1].exchange.tail.value, 0.4, 1e-12);
  EXPECT_EQ(source.options()[0].exchange.tail, Seconds(0));  // another group: not seen
  // A single step ten times as long does not move the median.
  source.observe(step_of(0.6, 0.3, 1.0));
  source.observe(step_of(6, 0.3, 6.4));
  EXPECT_EQ(source.version(), 1);
}

TEST(ScaledOptions, KeepStillUnderJitter) {
  ScaledOptions source = ScaledOptions::make(one_and_both()).value();
  for (const double jitter : {1.004, 0.993, 1.006, 0.998})
    source.observe(step_of(0.3 * jitter, 0.3 * jitter, 0.3 * jitter + 0.2));
  EXPECT_EQ(source.version(), 0);
}

TEST(ScaledOptions, GoOnIdenticalFromTheirText) {
  ScaledOptions one = ScaledOptions::make(one_and_both()).value(), other = one;
  for (const double slow : {1.0, 2.0, 2.0}) one.observe(step_of(0.3 * slow, 0.3, 1));
  ASSERT_TRUE(other.restore(parse_json(one.state().dump(), "s").value(), "s"));
  one.observe(step_of(0.7, 0.4, 1));
  other.observe(step_of(0.7, 0.4, 1));
  EXPECT_EQ(one.state(), other.state());
  EXPECT_EQ(one.options()[1].devices[0].points, other.options()[1].devices[0].points);
}

TEST(ScaledOptions, RefuseTheStateOfOtherDevices) {
  ScaledOptions source = ScaledOptions::make(one_and_both()).value();
  ScaledOptions less = ScaledOptions::make({one_and_both()[0]}).value();
  EXPECT_EQ(less.restore(source.state(), "s").error().message,
            "s: wanted corrections of 1 devices and 1 groups of them");
}

}  // namespace
}  // namespace motley::peers
