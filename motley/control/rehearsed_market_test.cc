#include "motley/control/rehearsed_market.h"

#include <gmock/gmock.h>

namespace motley::control {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using What = Presence::What;

constexpr trace::Nanoseconds kRentSecond = 1'000'000'000;

/// One's own a, a spot machine b of two devices, another one, c, that is not there.
RentRehearsal rent(double losses_per_hour = 0, double deadline = 700) {
  elastic::Offer offer{.kind = "cpu", .zone = "z", .region = "z", .is_spot = true};
  offer.price_per_hour = 3.6;
  offer.start.cold = Seconds(10);
  offer.notice = Seconds(5);
  offer.losses_per_hour = losses_per_hour;
  RentRehearsal made;
  made.question.market.offers = {offer};
  made.machines = {
      {"a", {"a:0"}, {}, 1, true}, {"b", {"b:0", "b:1"}, 0, 1, true}, {"c", {"c:0"}, 0, 1, false}};
  made.choices.deadline = Seconds(deadline);
  return made;
}

RehearsedMarket market(const simulate::Conditions& conditions, RentRehearsal of = rent()) {
  return {std::move(of), 1000, Seconds(0.5), conditions};
}

const policy::LossSeen kLoss{"b:0", Seconds(20)};

TEST(RehearsedMarket, MachinesGoWhereTheirAbsencesBegin) {
  simulate::Conditions conditions;
  conditions.absences = {{"a:0", Seconds(7)}, {"b:0", Seconds(20), Seconds(25)}};
  RehearsedMarket of = market(conditions);
  EXPECT_EQ(of.other_absences(), (std::vector<simulate::Absence>{{"a:0", Seconds(7)}}));
  EXPECT_THAT(absent_devices(of.policy().job().machines), ElementsAre("c:0"));
  EXPECT_THAT(of.take_events(), ElementsAre(Presence::Event{15 * kRentSecond, "b:0", What::kNotice},
                                            Presence::Event{15 * kRentSecond, "b:1", What::kNotice},
                                            Presence::Event{20 * kRentSecond, "b:0", What::kLoss},
                                            Presence::Event{20 * kRentSecond, "b:1", What::kLoss}));
}

TEST(RehearsedMarket, WhoIsAskedForComesBehindItsStartAndIsPaidFor) {
  RehearsedMarket of = market({});
  EXPECT_THAT(of.take_events(), IsEmpty());
  const auto choices = of.observe(kLoss);
  ASSERT_EQ(choices.size(), 1u);
  EXPECT_EQ(choices[0].action, policy::Action(policy::Rent{"cpu", "z", true, 1}));
  EXPECT_TRUE(of.observe(policy::LossSeen{"b:1", Seconds(20)}).empty());  // the same machine
  EXPECT_THAT(of.take_events(),
              ElementsAre(Presence::Event{30 * kRentSecond, "b:0", What::kArrival},
                          Presence::Event{30 * kRentSecond, "b:1", What::kArrival}));
  of.observe(policy::ArrivalSeen{"b:0", Seconds(30)});
  of.observe(policy::ArrivalSeen{"b:1", Seconds(30)});
  const RehearsedRent rent = of.end(Seconds(100));
  EXPECT_EQ(rent.asked, 1);
  EXPECT_EQ(rent.came, 1);
  EXPECT_EQ(rent.lost, 1);
  EXPECT_EQ(rent.spare, Seconds(600));
  EXPECT_NEAR(rent.paid, 0.03, 1e-12);  // 0.001 a second, from the beginning
}

TEST(RehearsedMarket, WhoIsAwayDoesNotCome) {
  simulate::Conditions conditions;
  conditions.absences = {{"b:0", Seconds(20), Seconds(31)}, {"c:0", Seconds(0), Seconds(30)}};
  RehearsedMarket of = market(conditions);
  of.take_events();
  of.observe(kLoss);
  EXPECT_THAT(of.take_events(), IsEmpty());
}

TEST(RehearsedMarket, LivesAreDrawnBySeedWhoeverRents) {
  const auto first = [](std::uint64_t seed, elastic::RentingRule rule) {
    RentRehearsal of = rent(3.6);
    of.choices.rule = rule;
    simulate::Conditions conditions;
    conditions.seed = seed;
    return market(conditions, of).take_events().back().at;
  };
  double sum = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed)
    sum += to_seconds(first(seed, elastic::RentingRule::kMotley)).value;
  EXPECT_NEAR(sum / 2000, 1000, 70);  // of a mean of 1000 s, three deviations
  EXPECT_EQ(first(3, elastic::RentingRule::kMotley), first(3, elastic::RentingRule::kNone));
  EXPECT_NE(first(3, elastic::RentingRule::kMotley), first(4, elastic::RentingRule::kMotley));
}

}  // namespace
}  // namespace motley::control
