#include "motley/control/rehearsal/rehearsed_market.h"

#include <gmock/gmock.h>

namespace motley::control {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using What = AvailabilityTrace::What;

constexpr trace::Nanoseconds kRentSecond = 1'000'000'000;

/// An owned machine a, a spot machine b of two devices, and an absent one, c.
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

elastic::JobRenting renting(const RentRehearsal& of = rent()) {
  return make_renting(of.question, of.machines, of.choices, 1000, Seconds(0.5));
}
RehearsedMarket market(const simulate::Conditions& conditions, const RentRehearsal& of = rent()) {
  return {renting(of), conditions};
}

constexpr std::size_t kSpot = 1;

TEST(RehearsedMarket, MachinesGoWhereTheirAbsencesBegin) {
  simulate::Conditions conditions;
  conditions.absences = {{"a:0", Seconds(7)}, {"b:0", Seconds(20), Seconds(25)}};
  RehearsedMarket of = market(conditions);
  EXPECT_EQ(of.other_absences(), (std::vector<simulate::Absence>{{"a:0", Seconds(7)}}));
  EXPECT_THAT(absent_devices(rent().machines), ElementsAre("c:0"));
  EXPECT_THAT(of.take_events(),
              ElementsAre(AvailabilityTrace::Event{15 * kRentSecond, "b:0", What::kNotice},
                          AvailabilityTrace::Event{15 * kRentSecond, "b:1", What::kNotice},
                          AvailabilityTrace::Event{20 * kRentSecond, "b:0", What::kLoss},
                          AvailabilityTrace::Event{20 * kRentSecond, "b:1", What::kLoss}));
}

TEST(RehearsedMarket, WhoIsAskedForComesBehindItsStart) {
  RehearsedMarket of = market({});
  EXPECT_THAT(of.take_events(), IsEmpty());
  const RentRehearsal made = rent();
  of.go(kSpot, MachineMarket::Went::kLost);
  of.ask({&made.machines[kSpot]}, Seconds(20));
  EXPECT_THAT(of.take_events(),
              ElementsAre(AvailabilityTrace::Event{30 * kRentSecond, "b:0", What::kArrival},
                          AvailabilityTrace::Event{30 * kRentSecond, "b:1", What::kArrival}));
  of.come(kSpot, Seconds(30));
  of.come(0, Seconds(30));
  const RehearsedRent ended = of.end(renting(), Seconds(100));
  EXPECT_EQ(ended.asked, 1);
  EXPECT_EQ(ended.came, 1);
  EXPECT_EQ(ended.lost, 1);
  EXPECT_EQ(ended.spare, Seconds(600));
  EXPECT_THAT(of.take_left(), IsEmpty());
  of.go(kSpot, MachineMarket::Went::kGivenBack);
  EXPECT_EQ(of.end(renting(), Seconds(100)).returned, 1);
  EXPECT_THAT(of.take_left(), ElementsAre("b:0", "b:1"));
}

TEST(RehearsedMarket, WhoIsAwayDoesNotCome) {
  simulate::Conditions conditions;
  conditions.absences = {{"b:0", Seconds(20), Seconds(31)}, {"c:0", Seconds(0), Seconds(30)}};
  RehearsedMarket of = market(conditions);
  of.take_events();
  const RentRehearsal made = rent();
  of.ask({&made.machines[kSpot]}, Seconds(20));
  EXPECT_THAT(of.take_events(), IsEmpty());
}

// It left 5 s before it is taken back at 40 s, as a notice announced; until then it is unavailable.
TEST(RehearsedMarket, WhoLeftBeforeItIsTakenBackComesBehindThat) {
  simulate::Conditions conditions;
  conditions.absences = {{"b:0", Seconds(40), Seconds(41)}};
  RehearsedMarket of = market(conditions);
  of.take_events();
  const RentRehearsal made = rent();
  of.go(kSpot, MachineMarket::Went::kLost);
  of.ask({&made.machines[kSpot]}, Seconds(25));
  EXPECT_THAT(of.take_events(), IsEmpty()) << "then it is away";
  of.ask({&made.machines[kSpot]}, Seconds(35));
  EXPECT_EQ(of.take_events().front().at, 45 * kRentSecond);
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
  EXPECT_NEAR(sum / 2000, 1000, 70);  // a mean of 1000 s, three deviations
  EXPECT_EQ(first(3, elastic::RentingRule::kMotley), first(3, elastic::RentingRule::kNone));
  EXPECT_NE(first(3, elastic::RentingRule::kMotley), first(4, elastic::RentingRule::kMotley));
}

}  // namespace
}  // namespace motley::control
