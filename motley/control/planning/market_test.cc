#include "motley/control/planning/market.h"

#include <gmock/gmock.h>

namespace motley::control {
namespace {

using ::testing::ElementsAre;

elastic::Market two_zones() {
  return elastic::parse_market(R"(schema = "motley.market/1"
name = "two"
bandwidth = "1GB/s"
[[offer]]
kind = "v100-16g"
zone = "us-west1-b"
spot = true
losses_per_hour = 0
price_per_hour = 1
most = 2
[[offer]]
kind = "v100-16g"
zone = "us-west1-b"
price_per_hour = 3
most = 2
)",
                               "m")
      .value();
}

TEST(PlanMarket, PlansOnceForMachinesThatAreTheSame) {
  MarketQuestion question{.market = two_zones()};
  question.steps = 3600;
  std::vector<std::size_t> planned;
  const MarketJob job{[&](const cluster::Cluster& machines) -> Result<std::optional<Seconds>> {
                        planned.push_back(machines.devices.size());
                        EXPECT_EQ(machines.links[0].bandwidth.value, 1e9);
                        if (machines.devices.size() == 1) return std::nullopt;
                        return Seconds(2.0 / static_cast<double>(machines.devices.size()));
                      },
                      Bytes(0)};
  const auto answer = plan_market(question, &job);
  ASSERT_TRUE(answer.has_value()) << answer.error().message;
  EXPECT_THAT(planned, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(answer->mixes, 8u);
  // Two spot machines, at a step a second, are cheapest; each additional on-demand one is faster.
  ASSERT_EQ(answer->pareto.size(), 3u);
  EXPECT_THAT(answer->pareto[*answer->chosen].mix.machines, ElementsAre(2, 0));
  EXPECT_THAT(answer->pareto[1].mix.machines, ElementsAre(2, 1));
  EXPECT_THAT(answer->pareto[2].mix.machines, ElementsAre(2, 2));
}

TEST(PlanMarket, SaysWhatOneMoreBringsWhereAServerBinds) {
  MarketQuestion question{.market = elastic::parse_market(R"(schema = "motley.market/1"
name = "servers"
[server]
service = "1s"
price_per_hour = 1
most = 1
[[offer]]
kind = "p100"
zone = "us-east1-c"
price_per_hour = 1
step = "3s"
most = 2
)",
                                                          "m")
                                        .value()};
  question.steps = 3600;
  question.wanted.deadline = Seconds(8000);
  const auto answer = plan_market(question, nullptr);
  ASSERT_TRUE(answer.has_value()) << answer.error().message;
  // One worker does 1/3 steps/s, two 0.6 (server_queue.h): 10,800 and 6,000 s; three 0.789, 31.6 %
  // more. 0.6 is 90 % of what two do alone, 2/3. With two servers each takes 0.5 s of 2.5 s: found
  // (0.5 / 2.5), visit 0.5 * 1.2 = 0.6, 2 / 2.6 = 0.769: 28.2 % more.
  ASSERT_TRUE(answer->chosen.has_value());
  EXPECT_THAT(answer->pareto[*answer->chosen].mix.machines, ElementsAre(2));
  EXPECT_THAT(answer->why,
              ElementsAre("workers do 0.6 steps/s, 90 % of the sum of each alone with one server",
                          "one more p100 on demand us-east1-c would bring +31.6 %",
                          "one more server would bring +28.2 %"));
}

TEST(PlanMarket, SaysWhatComesNextWhereNothingFits) {
  MarketQuestion question{.market = two_zones()};
  question.steps = 3600;
  question.wanted = {.deadline = Seconds(60), .budget = 100};
  const MarketJob job{
      [](const cluster::Cluster&) -> Result<std::optional<Seconds>> { return Seconds(1); },
      Bytes(0)};
  const auto answer = plan_market(question, &job);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->chosen, std::nullopt);
  EXPECT_EQ(answer->why.back(), "none is in time often enough within the budget");
  EXPECT_EQ(plan_market(question, nullptr).error().message,
            "which training? a market without [server] wants a model");
}

}  // namespace
}  // namespace motley::control
