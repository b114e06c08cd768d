#include "peers/steps/collective_curve.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

namespace motley::peers {
namespace {

CollectiveCurve curve_of(std::vector<CollectivePoint> points) {
  auto curve = CollectiveCurve::build(std::move(points));
  EXPECT_TRUE(curve) << curve.error().message;
  return *curve;
}

std::string message_of(std::vector<CollectivePoint> points) {
  const auto curve = CollectiveCurve::build(std::move(points));
  return curve ? "no error" : curve.error().message;
}

TEST(CollectiveCurve, InterpolatesInLogarithmsAndKeepsLatencyAndRateOutside) {
  const CollectiveCurve curve =
      curve_of({{Bytes(4'000'000), Seconds(200e-6)}, {Bytes(1'000'000), Seconds(100e-6)}});
  EXPECT_NEAR(curve.time(1e6).value, 100e-6, 1e-15);
  EXPECT_NEAR(curve.time(4e6).value, 200e-6, 1e-15);
  EXPECT_NEAR(curve.time(2e6).value, 100e-6 * std::sqrt(2.0), 1e-15);  // halfway in log(bytes)
  EXPECT_NEAR(curve.time(1).value, 100e-6, 1e-15);                     // the smallest one's time
  EXPECT_NEAR(curve.time(8e6).value, 400e-6, 1e-15);                   // the largest one's 20 GB/s
  EXPECT_EQ(curve.time(0), Seconds(0));
}

TEST(CollectiveCurve, PoolsTimesInTheWrongOrder) {
  // 3, 5, 4, 3 s: 5 and 4 become 4.5 each, then 3 joins them: 4, 4, 4.
  const CollectiveCurve curve = curve_of({{Bytes(1), Seconds(3)},
                                          {Bytes(2), Seconds(5)},
                                          {Bytes(4), Seconds(4)},
                                          {Bytes(8), Seconds(3)}});
  EXPECT_NEAR(curve.time(1).value, 3, 1e-12);
  EXPECT_NEAR(curve.time(2).value, 4, 1e-12);
  EXPECT_NEAR(curve.time(3).value, 4, 1e-12);
  EXPECT_NEAR(curve.time(8).value, 4, 1e-12);
}

TEST(CollectiveCurve, RefusesWhatIsNoTable) {
  EXPECT_EQ(message_of({}), "a collective without measured sizes");
  EXPECT_EQ(message_of({{Bytes(0), Seconds(1)}}),
            "a collective of 0 bytes in 1 s, wanted more than 0 of both");
  EXPECT_EQ(message_of({{Bytes(8), Seconds(-1)}}),
            "a collective of 8 bytes in -1 s, wanted more than 0 of both");
  EXPECT_EQ(message_of({{Bytes(8), Seconds(1)}, {Bytes(8), Seconds(2)}}),
            "a collective of 8 bytes comes twice");
}

RC_GTEST_PROP(CollectiveCurve, MoreBytesNeverTakeLess, ()) {
  std::vector<CollectivePoint> points;
  for (std::int64_t i = 1; i <= 8; ++i)
    points.push_back({Bytes(i * i), Seconds(*rc::gen::inRange(1, 100))});
  const auto curve = CollectiveCurve::build(points);
  RC_ASSERT(curve.has_value());
  const double bytes = *rc::gen::inRange(1, 100);
  RC_ASSERT(curve->time(bytes).value <= curve->time(bytes + 1).value * (1 + 1e-12));
}

}  // namespace
}  // namespace motley::peers
