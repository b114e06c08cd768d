#include "peers/policies/market_replay.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "motley/base/json.h"
#include "motley/base/random.h"

namespace motley::peers {
namespace {

SpotMarket market(std::string_view trace, int work, int deadline, int change_over) {
  SpotMarket made{
      .work = work, .deadline = deadline, .change_over = change_over, .spot = 1, .on_demand = 3};
  for (const char c : trace) made.is_there.push_back(c == 's');
  return made;
}

MarketOutcome outcome(const SpotMarket& of, const std::string& policy) {
  const auto made = make_deadline_policy(policy, job_of(of, "any", "any"));
  return replay_market(of, **made);
}

TEST(MarketReplay, OnDemandPaysForWorkAndChangeOver) {
  // One tick of change-over and four of work, at 3 each.
  const MarketOutcome paid = outcome(market("ssssssssss", 4, 10, 1), "on-demand");
  EXPECT_EQ(paid.cost, 15);
  EXPECT_EQ(paid.done_at, 5);
  EXPECT_FALSE(paid.is_late);
  EXPECT_TRUE(outcome(market("ssss", 4, 4, 1), "on-demand").is_late);
}

TEST(MarketReplay, GreedyWaitsUntilTheLastMoment) {
  // No spot machines: work 4 and change-over 1 must begin at tick 5 of 10.
  const MarketOutcome waited = outcome(market("..........", 4, 10, 1), "greedy");
  EXPECT_EQ(waited.cost, 15);
  EXPECT_EQ(waited.done_at, 10);
  // Two ticks of work on spot (3 paid), lost, then on demand for the other two: 3 + 3 * 3.
  const MarketOutcome lost = outcome(market("sss.......", 4, 10, 1), "greedy");
  EXPECT_EQ(lost.cost, 12);
  EXPECT_FALSE(lost.is_late);
}

TEST(MarketReplay, UniformStaysOnDemandUntilItIsAheadByTwoChangeOvers) {
  // Work 8 of 16 ticks, change-over 1. Spot from tick 1 on is taken at once: 9 ticks.
  const MarketOutcome paid = outcome(market(".sssssssssssssss", 8, 16, 1), "uniform");
  EXPECT_EQ(paid.cost, 9);
  // Spot from tick 2 on. Tick 1 is behind the line: on demand, until two change-overs ahead at tick
  // 8, when 6 are done: (k - 1) - (1 + k) / 2 >= 2 at k = 7. Then spot for two: 7 * 3 + 3.
  const MarketOutcome late_spot = outcome(market("..ssssssssssssss", 8, 16, 1), "uniform");
  EXPECT_EQ(late_spot.cost, 24);
}

TEST(MarketReplay, ClairvoyantKnowsWhenToWait) {
  // Four ticks of work and one of change-over fit into ticks 5 to 9.
  EXPECT_EQ(clairvoyant_cost(market(".....sssss", 4, 10, 1)), 5);
  // Spot in ticks 0 to 2 trains for two, then on demand for two: 3 + 3 * 3.
  EXPECT_EQ(clairvoyant_cost(market("sss.......", 4, 10, 1)), 12);
  // Nothing is in time.
  EXPECT_EQ(clairvoyant_cost(market("s", 4, 4, 1)), 15);
}

RC_GTEST_PROP(MarketReplay, NobodyIsCheaperThanClairvoyantOrLaterThanOnDemand, ()) {
  SplitMix64 random(*rc::gen::arbitrary<std::uint64_t>());
  const int work = 5 + static_cast<int>(random.below(40));
  SpotMarket drawn{.work = work,
                   .deadline = work + static_cast<int>(random.below(40)),
                   .change_over = 1 + static_cast<int>(random.below(4)),
                   .spot = 1,
                   .on_demand = 3};
  const double leaves = random.uniform(), returns = random.uniform();
  bool is_there = random.below(2) == 0;
  for (int at = 0; at < 2 * drawn.deadline; ++at) {
    drawn.is_there.push_back(is_there);
    if (random.uniform() < (is_there ? leaves : returns)) is_there = !is_there;
  }
  const bool must_be_late = work + drawn.change_over > drawn.deadline;
  for (const std::string& policy : deadline_policies()) {
    const MarketOutcome paid = outcome(drawn, policy);
    RC_ASSERT(paid.is_late == must_be_late);
    if (!paid.is_late) RC_ASSERT(paid.cost >= clairvoyant_cost(drawn) - 1e-9);
  }
}

TEST(DeadlinePolicy, GoesOnFromItsState) {
  const SpotMarket trace = market("..ss.sssss..ssssssssssssssss", 10, 26, 2);
  for (const std::string& name : deadline_policies()) {
    const DeadlineJob job = job_of(trace, "any", "any");
    const auto one = make_deadline_policy(name, job).value();
    for (int at = 0; at < 28; ++at) {
      const policy::PriceSeen price{"any", "any", Seconds(300.0 * at),
                                    trace.has_spot(at) ? 1 : policy::kNotOffered};
      const auto other = make_deadline_policy(name, job).value();
      ASSERT_TRUE(other->restore(one->state(), "x").has_value());
      const auto expected = one->observe(price);
      EXPECT_EQ(other->observe(price), expected) << name << " at " << at;
      EXPECT_EQ(other->state(), one->state()) << name << " at " << at;
    }
  }
}

TEST(DeadlinePolicy, SaysWhatIsWrong) {
  const DeadlineJob job = job_of(market("s", 4, 10, 1), "any", "any");
  EXPECT_EQ(
      make_deadline_policy("greedi", job).error().message,
      "unknown policy 'greedi', did you mean 'greedy'?; policies: on-demand, greedy, uniform, "
      "motley");
  const auto greedy = make_deadline_policy("greedy", job).value();
  const auto uniform = make_deadline_policy("uniform", job).value();
  EXPECT_EQ(greedy->restore(uniform->state(), "c.json").error().message,
            "c.json: state of policy 'uniform', version 1; wanted 'greedy', version 1");
}

}  // namespace
}  // namespace motley::peers
