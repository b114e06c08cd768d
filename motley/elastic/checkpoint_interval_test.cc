#include "motley/elastic/checkpoint_interval.h"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

namespace motley::elastic {
namespace {

using ::testing::ElementsAre;

constexpr Seconds kNever{std::numeric_limits<double>::infinity()};

SavingCosts saving(double seconds) { return {.save = Seconds(seconds), .background = 0}; }

TEST(CheckpointInterval, IsYoungsWhereTheHazardIsConstant) {
  // sqrt(2 * 50 / 0.0001) = 1000.
  const AgeHazard constant{{Seconds(0)}, {1e-4}};
  EXPECT_NEAR(checkpoint_interval(constant, kNever, saving(50)).value, 1000, 1e-9);
}

TEST(CheckpointInterval, GrowsPastAnEarlyCrowdOfLosses) {
  // 1e-4 up to 100 s, then 1e-6. The first piece is best at its end (sqrt gives 1000): (50 + 1e-4 *
  // 100^2 / 2) / 100 = 0.505. The second: before = 50.5 - 1e-6 * 100^2 / 2 = 50.495, tau = 10049.4.
  const AgeHazard falling{{Seconds(0), Seconds(100)}, {1e-4, 1e-6}};
  EXPECT_NEAR(checkpoint_interval(falling, kNever, saving(50)).value, std::sqrt(2 * 50.495 / 1e-6),
              1e-6);
}

TEST(CheckpointInterval, EndsBeforeTheLimitAndIsNotNeededWithANotice) {
  const AgeHazard constant{{Seconds(0)}, {1e-4}};
  // 600 s remain and saving takes 50.
  EXPECT_EQ(checkpoint_interval(constant, Seconds(600), saving(50)), Seconds(550));
  const SavingCosts in_time{.save = Seconds(50), .notice = Seconds(120), .background = 0};
  EXPECT_EQ(checkpoint_interval(constant, kNever, in_time), kNever);
  // The background comes without notice: sqrt(2 * 50 / 1e-6) = 10000.
  const SavingCosts usual{.save = Seconds(50), .notice = Seconds(120)};
  EXPECT_NEAR(checkpoint_interval(constant, kNever, usual).value, 10'000, 1e-6);
  EXPECT_EQ(checkpoint_interval({{Seconds(0)}, {0}}, kNever, saving(50)), kNever);
}

RC_GTEST_PROP(CheckpointInterval, WastesNoMoreThanAnyOtherOnAGrid, ()) {
  AgeHazard hazard{{Seconds(0), Seconds(300), Seconds(900)}, {}};
  for (int i = 0; i < 3; ++i) hazard.per_second.push_back(1e-6 * *rc::gen::inRange(1, 2000));
  const double save = *rc::gen::inRange(1, 100);
  const auto wasted = [&](double tau) {
    double lost = save;  // midpoints of one-second steps
    for (double u = 0.5; u < tau; ++u) lost += u * hazard.at(Seconds(u));
    return lost / tau;
  };
  const double best = checkpoint_interval(hazard, kNever, saving(save)).value;
  if (best > 4000) return;
  for (double tau = 20; tau < 4000; tau *= 1.2)
    RC_ASSERT(wasted(std::round(best) + 0.0) <= wasted(std::round(tau)) * 1.02);
}

TEST(CheckpointInterval, HazardsOfMachinesAddUpFromNowOn) {
  // For the one aged 60 s the second piece begins in 40 s.
  const AgeHazard hazard{{Seconds(0), Seconds(100)}, {0.5, 0.125}};
  const AgeHazard ahead = hazard_ahead({{hazard, Seconds(60)}, {hazard, Seconds(200)}});
  EXPECT_THAT(ahead.ages, ElementsAre(Seconds(0), Seconds(40)));
  EXPECT_THAT(ahead.per_second, ElementsAre(0.625, 0.25));
}

TEST(CheckpointInterval, AMirrorMakesRollbacksRare) {
  // 2 * 1e-4 * 2e-4 * 100 s.
  const AgeHazard both = mirrored({{Seconds(0)}, {1e-4}}, {{Seconds(0)}, {2e-4}}, Seconds(100));
  EXPECT_NEAR(both.per_second[0], 4e-6, 1e-15);
}

}  // namespace
}  // namespace motley::elastic
