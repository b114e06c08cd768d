#include "peers/steps/server_fit.h"

#include <gtest/gtest.h>

#include "motley/elastic/server_queue.h"

namespace motley::peers {
namespace {

TEST(ServerFit, FindsWhatMadeTheCurve) {
  std::vector<SpeedPoint> curve;
  for (const std::int64_t n : {1, 2, 4, 8}) {
    const auto speed = elastic::estimate_cluster_speed({{n, Seconds(0.08)}}, Seconds(0.02));
    curve.push_back({n, speed->steps_per_second});
  }
  const auto fit = fit_server(curve);
  ASSERT_TRUE(fit.has_value());
  EXPECT_NEAR(fit->service.value, 0.02, 1e-6);
  EXPECT_NEAR(fit->step.value, 0.08, 1e-6);
}

TEST(ServerFit, RefusesWhatCannotBe) {
  EXPECT_EQ(fit_server({{2, 1.0}, {2, 1.1}}).error().message,
            "a curve of one number of workers, wanted two or more");
  EXPECT_EQ(fit_server({{0, 1.0}, {2, 1.1}}).error().message,
            "0 workers at 1 steps/s, wanted one or more and more than 0");
}

}  // namespace
}  // namespace motley::peers
