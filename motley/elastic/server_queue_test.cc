#include "motley/elastic/server_queue.h"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

namespace motley::elastic {
namespace {

double speed(const std::vector<AsyncWorkers>& workers, double service, std::int64_t servers = 1) {
  const auto result = estimate_cluster_speed(workers, Seconds(service), servers);
  return result ? result->steps_per_second : -1;
}

TEST(ServerQueue, FollowsTheRecursionOfEqualWorkers) {
  // n = 1: visit 1, 1 / 3, found 1/3; n = 2: visit 4/3, 0.6, found 0.8; n = 3: visit 1.8, 3 / 3.8.
  EXPECT_NEAR(speed({{1, Seconds(3)}}, 1), 1.0 / 3, 1e-12);
  EXPECT_NEAR(speed({{2, Seconds(3)}}, 1), 0.6, 1e-12);
  EXPECT_NEAR(speed({{3, Seconds(3)}}, 1), 3 / 3.8, 1e-12);
}

TEST(ServerQueue, KindsThatAreIdenticalAreOneKind) {
  EXPECT_NEAR(speed({{2, Seconds(3)}, {1, Seconds(3)}}, 1), 3 / 3.8, 1e-12);
  EXPECT_NEAR(speed({{3, Seconds(3)}, {0, Seconds(9)}}, 1), 3 / 3.8, 1e-12);
}

TEST(ServerQueue, UnequalWorkersDelayEachOther) {
  // One worker away 2 s, one away 4 s. Each alone is at the server 1/3 and 1/5 of the time: the
  // first's visit takes 1 + 1/5 (step 3.2 s), the second's 1 + 1/3 (step 16/3 s).
  const auto result = estimate_cluster_speed({{1, Seconds(3)}, {1, Seconds(5)}}, Seconds(1));
  ASSERT_TRUE(result.has_value());
  EXPECT_NEAR(result->of_worker[0], 1 / 3.2, 1e-12);
  EXPECT_NEAR(result->of_worker[1], 3.0 / 16, 1e-12);
  EXPECT_NEAR(result->steps_per_second, 0.5, 1e-12);
}

TEST(ServerQueue, ServersShareTheWorkOfAStep) {
  // Two servers of 0.5 s: away 2 s, visit 0.5 s, alone 1 / 2.5; two: found 0.2, visit 0.6, 2 / 2.6.
  EXPECT_NEAR(speed({{1, Seconds(3)}}, 1, 2), 0.4, 1e-12);
  EXPECT_NEAR(speed({{2, Seconds(3)}}, 1, 2), 2 / 2.6, 1e-12);
}

TEST(ServerQueue, NoWorkersAreNoSpeed) {
  EXPECT_DOUBLE_EQ(speed({}, 1), 0);
  EXPECT_DOUBLE_EQ(speed({{0, Seconds(3)}}, 1), 0);
}

RC_GTEST_PROP(ServerQueue, StaysBelowTheSumAndTheServer, ()) {
  const auto count = *rc::gen::inRange(1, 40);
  const double service = *rc::gen::inRange(1, 1000) / 1000.0;
  const double all = speed({{count, Seconds(1)}}, service);
  RC_ASSERT(all <= count * (1 + 1e-12));
  RC_ASSERT(all <= 1 / service * (1 + 1e-12));
  RC_ASSERT(all >= speed({{count - 1, Seconds(1)}}, service) * (1 - 1e-12));
}

TEST(ServerQueue, RefusesWhatCannotBe) {
  const auto message = [](const std::vector<AsyncWorkers>& workers, double service) {
    return estimate_cluster_speed(workers, Seconds(service)).error().message;
  };
  EXPECT_EQ(message({{1, Seconds(1)}}, 0),
            "1 servers with 0 s a step, wanted at least one and more than 0 s");
  EXPECT_EQ(message({{2, Seconds(1)}}, 2),
            "2 workers with a step of 1 s, wanted none or more and at least the server's 2 s");
  EXPECT_EQ(message({{999, Seconds(1)}, {1000, Seconds(1)}}, 1),
            "more than 1000000 mixtures of 2 kinds of workers; join kinds that are identical");
}

}  // namespace
}  // namespace motley::elastic
