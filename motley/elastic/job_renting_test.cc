#include "motley/elastic/job_renting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <utility>

#include "motley/base/json.h"
#include "motley/base/random.h"

namespace motley::elastic {
namespace {

using ::testing::HasSubstr;

Offer offer(std::string zone, bool is_spot, double price) {
  Offer made{.kind = "cpu", .zone = std::move(zone), .region = "z", .is_spot = is_spot};
  made.price_per_hour = price;
  made.start.cold = Seconds(10);
  if (is_spot) made.losses_per_hour = 0;
  return made;
}

/// 1000 steps by an own machine and a spot machine, each 1 step/s. Absent: a spot machine in
/// another zone, and one on demand. Each starts within 10 s.
RentingJob job(double deadline) {
  RentingJob made{.steps = 1000, .step = Seconds(0.5), .deadline = Seconds(deadline)};
  made.market.offers = {offer("z-a", true, 1), offer("z-b", true, 0.5), offer("z-a", false, 3)};
  made.machines = {{"a", {"a:0"}, {}, 1, true},
                   {"b", {"b:0"}, 0, 1, true},
                   {"c", {"c:0"}, 1, 1, false},
                   {"d", {"d:0"}, 2, 1, false}};
  return made;
}

JobRenting renting(const RentingJob& job) { return {job, Lifetimes()}; }

policy::StepSeen step(std::int64_t number, double at, double took = 1) {
  policy::StepSeen seen;
  seen.step = number;
  seen.at = Seconds(at);
  seen.took = Seconds(took);
  return seen;
}

policy::PriceSeen price(std::string zone, double per_hour, bool is_spot = true) {
  return {"cpu", std::move(zone), Seconds(0), per_hour, is_spot};
}

const policy::LossSeen kLoss{"b:0", Seconds(0)};

TEST(JobRenting, SaysTimeAndCostLeftAndGoesOnWhereThatIsInTime) {
  JobRenting policy = renting(job(2000));
  const auto choices = policy.observe(kLoss);
  ASSERT_EQ(choices.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<policy::Tell>(choices[0].action));
  // Alone 1000 s, free. With another: 10 steps until it is there, 990 at 2 steps/s: 505 s, paid.
  const double hour = 505 / 3600.0;
  const std::vector<policy::Alternative> expected = {
      {"as it is", Seconds(1000), 0},
      {"1 cpu spot z-a", Seconds(505), hour},
      {"1 cpu spot z-b", Seconds(505), 0.5 * hour},
      {"1 cpu on demand z-a", Seconds(505), 3 * hour}};
  ASSERT_EQ(choices[0].alternatives.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(choices[0].alternatives[i].what, expected[i].what);
    EXPECT_NEAR(choices[0].alternatives[i].time.value, expected[i].time.value, 1e-9);
    EXPECT_NEAR(choices[0].alternatives[i].cost, expected[i].cost, 1e-12);
  }
  EXPECT_EQ(choices[0].expected, Seconds(1));
  EXPECT_EQ(choices[0].why,
            "b is lost; left: 17 min for 0; with 1 cpu spot z-a 8 min for 0.14; with 1 cpu spot "
            "z-b 8 min for 0.0701; with 1 cpu on demand z-a 8 min for 0.421; 33 min to the "
            "deadline, 0 paid: goes on as it is, those that are there are in time");
}

policy::Action action_of(JobRenting& policy, const policy::Observation& seen) {
  const auto choices = policy.observe(seen);
  return choices.empty() ? policy::Action(policy::Save{}) : choices[0].action;
}

TEST(JobRenting, AsksForNoMachineThatWouldSlowItDown) {
  RentingJob slowed = job(700);
  slowed.step = Seconds(4);
  slowed.speed = [](const Machines& machines) { return machines.size() == 1 ? 1 : 0.5; };
  JobRenting policy = renting(slowed);
  EXPECT_THAT(policy.observe(kLoss)[0].why, HasSubstr("goes on as it is, nothing that helps"));
}

TEST(JobRenting, AsksForTheCheapestSpotMachineWhereItIsLateOtherwise) {
  JobRenting policy = renting(job(700));
  EXPECT_EQ(action_of(policy, kLoss), policy::Action(policy::Rent{"cpu", "z-b", true, 1}));
  ASSERT_EQ(policy.asked_for({"cpu", "z-b", true, 1}).size(), 1u);
  EXPECT_EQ(policy.asked_for({"cpu", "z-b", true, 1})[0]->name, "c");
}

TEST(JobRenting, AnotherPriceIsAnotherDecision) {
  JobRenting dear = renting(job(700));
  EXPECT_EQ(dear.observe(price("z-b", 2)).size(), 1u);
  EXPECT_EQ(action_of(dear, kLoss), policy::Action(policy::Rent{"cpu", "z-a", true, 1}));
  JobRenting none = renting(job(700));
  none.observe(price("z-a", policy::kNotOffered));
  none.observe(price("z-b", policy::kNotOffered));
  EXPECT_THAT(none.observe(kLoss)[0].why, HasSubstr("goes on as it is, it can wait"));
  const auto back = none.observe(price("z-b", 0.7));
  EXPECT_EQ(back.at(0).action, policy::Action(policy::Rent{"cpu", "z-b", true, 1})) << back[0].why;
}

TEST(JobRenting, GoesOnDemandAtTheLastMoment) {
  JobRenting policy = renting(job(700));
  policy.observe(price("z-a", policy::kNotOffered));
  policy.observe(price("z-b", policy::kNotOffered));
  policy.observe(kLoss);
  // Alone it does a step per second; with d the rest takes half as long. 200 - t/2 s remain for a
  // start of 10 s and a tick of 1 s until t = 378 s. The plan's cells are 400/160 = 2.5 s.
  std::vector<policy::Choice> choices;
  int asked_at = 0;
  for (int t = 1; choices.empty() && t < 400; ++t)
    choices = policy.observe(step(t - 1, asked_at = t));
  EXPECT_GT(asked_at, 360);
  EXPECT_LE(asked_at, 379);
  ASSERT_EQ(choices.size(), 1u);
  EXPECT_EQ(choices[0].action, policy::Action(policy::Rent{"cpu", "z-a", false, 1}));
  EXPECT_THAT(choices[0].why, HasSubstr("time goes by; left: "));
}

TEST(JobRenting, WhoIsLateAsksForMoreThanItBeganWith) {
  // With both 500 s, with d too 333 s, with c as well 250 s plus its start.
  JobRenting policy = renting(job(300));
  policy.observe(step(0, 1, 0.5));
  EXPECT_EQ(action_of(policy, step(2, 2, 0.5)),
            policy::Action(policy::Rent{"cpu", "z-b", true, 1}));
}

TEST(JobRenting, ItPaysToReplaceWhatMakesOthersEarlierDone) {
  // Two spot machines at 1 per hour, no deadline near. The remaining one alone needs 1000 s at 1;
  // another at 0.5 reduces that to 505 s at 1.5: 0.75 of the cost.
  RentingJob two = job(1e5);
  two.machines[0].offer = 0;
  JobRenting policy = renting(two);
  EXPECT_EQ(action_of(policy, kLoss), policy::Action(policy::Rent{"cpu", "z-b", true, 1}));
  // At 1.5 per hour it does not pay: 505 s at 2.5.
  JobRenting dear = renting(two);
  dear.observe(price("z-b", 1.5));
  dear.observe(price("z-a", 1.5));
  EXPECT_THAT(dear.observe(kLoss)[0].why, HasSubstr("those that are there are in time"));
}

TEST(JobRenting, KeepsTheBudget) {
  // 505 s of a spot machine at 0.5 per hour are needed: 0.07.
  RentingJob poor = job(700);
  poor.budget = 0.05;
  JobRenting policy = renting(poor);
  EXPECT_THAT(policy.observe(kLoss)[0].why,
              HasSubstr("nothing that helps is for rent within the budget"));
  EXPECT_FALSE(policy.is_spent());
  RentingJob spends = job(700);
  spends.budget = 0.05;
  JobRenting other = renting(spends);
  other.observe(step(100, 180));  // b costs 1 per hour: 0.05
  EXPECT_DOUBLE_EQ(other.paid(), 0.05);
  EXPECT_TRUE(other.is_spent());
}

TEST(JobRenting, AsksElsewhereWhereNobodyComes) {
  JobRenting policy = renting(job(700));
  policy.observe(kLoss);
  for (int t = 1; t <= 20; ++t) ASSERT_TRUE(policy.observe(step(t - 1, t)).empty()) << t;
  const auto choices = policy.observe(step(21, 22));
  ASSERT_EQ(choices.size(), 1u);
  EXPECT_EQ(choices[0].action, policy::Action(policy::Rent{"cpu", "z-a", true, 1}));
  EXPECT_THAT(choices[0].why, HasSubstr("c did not come"));
}

TEST(JobRenting, ANoticeIsAsGoodAsALoss) {
  JobRenting policy = renting(job(700));
  const auto choices = policy.observe(policy::NoticeSeen{"b:0", Seconds(0), Seconds(30)});
  ASSERT_EQ(choices.size(), 1u);
  EXPECT_EQ(choices[0].action, policy::Action(policy::Rent{"cpu", "z-b", true, 1}));
  // Unchanged: 30 s with both, 940 steps alone.
  EXPECT_DOUBLE_EQ(choices[0].alternatives[0].time.value, 970);
}

TEST(JobRenting, RegionsStayApart) {
  RentingJob two = job(700);
  two.market.offers[1].region = "y";
  two.machines.push_back({"e", {"e:0"}, 0, 1, true});
  JobRenting policy = renting(two);
  const auto choices = policy.observe(kLoss);
  for (const policy::Alternative& each : choices.at(0).alternatives)
    EXPECT_NE(each.what, "1 cpu spot z-b");
}

TEST(JobRenting, LearnsLifetimes) {
  JobRenting policy = renting(job(700));
  policy.observe(policy::LossSeen{"b:0", Seconds(60)});
  policy.observe(policy::ArrivalSeen{"c:0", Seconds(80)});
  policy.observe(policy::LossSeen{"c:0", Seconds(90), true});
  const auto& lives = policy.lifetimes().machines();
  EXPECT_EQ(lives.at("b life 1"), (RentedMachine{"cpu", "z-a", Seconds(0), Seconds(60), true}));
  EXPECT_EQ(lives.at("c life 1"), (RentedMachine{"cpu", "z-b", Seconds(80), Seconds(90), false}));
}

TEST(JobRenting, SlowerStepsAreTold) {
  JobRenting policy = renting(job(2000));
  for (int t = 1; t <= 10; ++t) ASSERT_TRUE(policy.observe(step(2 * t, t, 0.5)).empty());
  std::vector<policy::Choice> told;
  for (int t = 11; told.empty() && t < 40; ++t) told = policy.observe(step(10 + t, t, 1));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_THAT(told[0].why, HasSubstr("a step takes "));
}

/// The job with d present too, where machines may be given back.
RentingJob giving(double deadline) {
  RentingJob made = job(deadline);
  made.machines[3].is_there = true;
  made.step = Seconds(1 / 3.0);
  made.gives_back = true;
  return made;
}

/// Returns the choice after the first steps, two of which do not count.
policy::Choice settled(JobRenting& policy) {
  std::vector<policy::Choice> choices;
  for (int t = 1; t <= 4 && choices.empty(); ++t) choices = policy.observe(step(t - 1, t, 1 / 3.0));
  return choices.empty() ? policy::Choice{policy::Save{}, {}, ""} : choices[0];
}

TEST(JobRenting, GivesBackWhatIsDearAsLongAsTheOthersAreInTime) {
  JobRenting policy = renting(giving(2000));
  const policy::Choice first = settled(policy);
  // d costs 3 of 4 per hour for a third of the steps: 997 steps take 332 s at 4 or 499 s at 1.
  EXPECT_EQ(first.action, policy::Action(policy::Rent{"cpu", "z-a", false, -1}));
  EXPECT_THAT(first.why, HasSubstr("gives back d, the others are in time and cost 0.231 less"));
  ASSERT_EQ(policy.asked_for({"cpu", "z-a", false, -1}).size(), 1u);
  EXPECT_EQ(policy.asked_for({"cpu", "z-a", false, -1})[0]->name, "d");
  // The own machine alone takes 990 s for free.
  policy.observe(policy::LossSeen{"d:0", Seconds(5), true});
  std::vector<policy::Choice> next;
  for (int t = 6; t <= 9 && next.empty(); ++t) next = policy.observe(step(t, t, 0.5));
  ASSERT_EQ(next.size(), 1u);
  EXPECT_EQ(next[0].action, policy::Action(policy::Rent{"cpu", "z-a", true, -1}));
}

TEST(JobRenting, KeepsWhatTheDeadlineWants) {
  JobRenting near = renting(giving(400));  // without d 499 s
  EXPECT_EQ(settled(near).action, policy::Action(policy::Save{}));
  RentingJob kept = giving(2000);
  kept.gives_back = false;
  JobRenting never = renting(kept);
  EXPECT_EQ(settled(never).action, policy::Action(policy::Save{}));
}

// Predicted speeds of sets: nothing trains without d; the others together exceed their sum.
TEST(JobRenting, SpeedsOfSetsAreAsBelieved) {
  RentingJob held = giving(2000);
  held.speed = [](const Machines& machines) {
    return machines.contains(3) ? static_cast<double>(machines.size()) : 0.0;
  };
  JobRenting keeps = renting(held);
  EXPECT_EQ(settled(keeps).action, policy::Action(policy::Save{}));
  // A lost b leaves a and d a third of the speed, measured as 3 steps/s.
  held.gives_back = false;
  held.speed = [](const Machines& machines) { return machines.size() == 3 ? 30.0 : 10.0; };
  JobRenting less = renting(held);
  const auto choices = less.observe(kLoss);
  EXPECT_DOUBLE_EQ(choices.at(0).alternatives.at(0).time.value, 1000);
}

// Two machines at least train. With only d and a, the loss of b would end the run.
TEST(JobRenting, WhoIsLeftOutlivesALoss) {
  RentingJob frail = giving(2000);
  frail.speed = [](const Machines& machines) {
    return machines.size() > 1 ? static_cast<double>(machines.size()) : 0.0;
  };
  JobRenting policy = renting(frail);
  EXPECT_EQ(settled(policy).action, policy::Action(policy::Save{}));
}

// Steps without a leaving machine do not measure the present set.
TEST(JobRenting, WhoIsToLeaveIsNotMeasured) {
  JobRenting policy = renting(job(2000));
  for (int t = 1; t <= 4; ++t) policy.observe(step(t - 1, t, 0.5));
  policy.observe(policy::NoticeSeen{"b:0", Seconds(4), Seconds(30)});
  for (int t = 5; t <= 30; ++t) EXPECT_TRUE(policy.observe(step(t - 1, t, 1)).empty());
  const auto choices = policy.observe(policy::LossSeen{"b:0", Seconds(31)});
  EXPECT_DOUBLE_EQ(choices.at(0).alternatives.at(0).time.value, 970);
}

TEST(JobRenting, WhatCannotLeaveIsNotGivenBackAgain) {
  JobRenting policy = renting(giving(2000));
  ASSERT_TRUE(std::holds_alternative<policy::Rent>(settled(policy).action));
  policy.observe(policy::ArrivalSeen{"d:0", Seconds(5)});
  JobRenting restored = renting(giving(2000));
  ASSERT_TRUE(restored.restore(policy.state(), "x"));
  for (int t = 6; t <= 9; ++t) EXPECT_TRUE(restored.observe(step(t, t, 1 / 3.0)).empty());
}

policy::Action asked_by(RentingRule rule, double deadline, bool has_spot = true, double at = 0) {
  RentingJob made = job(deadline);
  made.rule = rule;
  JobRenting policy = renting(made);
  if (!has_spot) {
    policy.observe(price("z-a", policy::kNotOffered));
    policy.observe(price("z-b", policy::kNotOffered));
  }
  return action_of(policy, policy::LossSeen{"b:0", Seconds(at)});
}

TEST(JobRenting, OthersAskForWhateverIsMissing) {
  const policy::Action spot = policy::Rent{"cpu", "z-b", true, 1};
  const policy::Action on_demand = policy::Rent{"cpu", "z-a", false, 1};
  const auto is_nothing = [](const policy::Action& action) {
    return std::holds_alternative<policy::Tell>(action);
  };
  EXPECT_EQ(asked_by(RentingRule::kGreedy, 1e4), spot);
  EXPECT_EQ(asked_by(RentingRule::kOnDemand, 1e4), on_demand);
  EXPECT_EQ(asked_by(RentingRule::kUniform, 1e4), spot);
  EXPECT_TRUE(is_nothing(asked_by(RentingRule::kNone, 300)));
  EXPECT_TRUE(is_nothing(asked_by(RentingRule::kGreedy, 1e4, false, 10)));
  EXPECT_EQ(asked_by(RentingRule::kUniform, 1e4, false, 10), on_demand);  // nothing was done yet
}

TEST(JobRenting, RulesAreFoundByName) {
  for (const std::string& name : renting_rules()) EXPECT_TRUE(find_renting_rule(name)) << name;
  EXPECT_EQ(find_renting_rule("greedi").error().message,
            "no policy that rents is named 'greedi', did you mean 'greedy'?");
}

/// A job with drawn losses and arrivals: seconds until it is done, and cost.
struct Played {
  double seconds = 0, paid = 0;
};
Played play(const RentingJob& job, double leaves, double comes, SplitMix64& random) {
  JobRenting policy(job, Lifetimes());
  std::vector<bool> there;
  std::vector<double> due(job.machines.size(), -1);
  for (const JobMachine& machine : job.machines) there.push_back(machine.is_there);
  double done = 0;
  std::vector<std::size_t> returned;
  const auto ask = [&](const std::vector<policy::Choice>& choices, double now) {
    for (const policy::Choice& choice : choices)
      if (const auto* rent = std::get_if<policy::Rent>(&choice.action))
        for (const JobMachine* machine : policy.asked_for(*rent)) {
          const auto m = static_cast<std::size_t>(machine - policy.job().machines.data());
          if (rent->count < 0)
            returned.push_back(m);
          else if (!rent->spot || random.uniform() < comes)
            due[m] = now + job.market.offers[*machine->offer].start.cold.value;
        }
  };
  int now = 0;
  while (done < static_cast<double>(job.steps) && now < 100'000) {
    for (std::size_t m = 0; m < there.size(); ++m) {
      if (there[m]) done += job.machines[m].speed;
      const auto& of = job.machines[m].offer;
      if (there[m] && of && job.market.offers[*of].is_spot && random.uniform() < leaves) {
        there[m] = false;
        ask(policy.observe(policy::LossSeen{job.machines[m].devices[0], Seconds(now)}), now);
      }
      if (due[m] >= 0 && due[m] <= now) {
        due[m] = -1;
        there[m] = true;
        ask(policy.observe(policy::ArrivalSeen{job.machines[m].devices[0], Seconds(now)}), now);
      }
    }
    for (const std::size_t m : std::exchange(returned, {})) {
      there[m] = false;
      ask(policy.observe(policy::LossSeen{job.machines[m].devices[0], Seconds(now), true}), now);
    }
    ++now;
    double sum = 0;
    for (std::size_t m = 0; m < there.size(); ++m) sum += there[m] ? job.machines[m].speed : 0;
    ask(policy.observe(step(static_cast<std::int64_t>(done) - 1, now, sum > 0 ? 1 / sum : 0)), now);
  }
  return {static_cast<double>(now), policy.paid()};
}

RC_GTEST_PROP(JobRenting, IsInTimeWhereOnDemandAloneCouldBe, ()) {
  SplitMix64 random(*rc::gen::arbitrary<std::uint64_t>());
  RentingJob drawn{.steps = 500, .step = {}, .deadline = Seconds(0)};
  drawn.tick = Seconds(3);
  drawn.market.offers = {offer("z-a", true, 1 + random.uniform()),
                         offer("z-b", true, 1 + random.uniform()), offer("z-a", false, 3)};
  const std::size_t spots = 1 + random.below(3);
  const bool has_own = random.below(2) == 0;
  double sum = 0;
  if (has_own) drawn.machines.push_back({"own", {"own:0"}, {}, sum = 1, true});
  for (std::size_t i = 0; i < spots; ++i, ++sum) {
    const std::string n = std::to_string(i);
    drawn.machines.push_back({"s" + n, {"s" + n + ":0"}, i % 2, 1, true});
    drawn.machines.push_back({"o" + n, {"o" + n + ":0"}, 2, 1, false});
  }
  drawn.step = Seconds(1 / sum);
  drawn.gives_back = random.below(2) == 0;
  const RentingRule rules[] = {RentingRule::kMotley, RentingRule::kMotley, RentingRule::kGreedy,
                               RentingRule::kOnDemand, RentingRule::kUniform};
  drawn.rule = rules[random.below(5)];
  // On demand alone: a start, then all steps.
  drawn.deadline = Seconds((20 + 500 / sum) * (1 + random.uniform()));
  const Played played = play(drawn, 0.01 * random.uniform(), random.uniform(), random);
  constexpr double kPlayed = 1;  // the replay has whole seconds
  RC_ASSERT(played.seconds <= drawn.deadline.value + drawn.tick.value + kPlayed);
}

TEST(JobRenting, GoesOnFromItsState) {
  SplitMix64 random(7);
  JobRenting one = renting(job(700));
  double now = 0;
  for (int i = 0; i < 300; ++i) {
    now += random.uniform() * 3;
    const std::string devices[] = {"a:0", "b:0", "c:0", "d:0"};
    const std::string device = devices[random.below(4)];
    policy::Observation seen = step(i, now, 1 + random.uniform());
    if (random.below(8) == 0) seen = policy::LossSeen{device, Seconds(now)};
    if (random.below(8) == 0) seen = policy::ArrivalSeen{device, Seconds(now)};
    if (random.below(8) == 0) seen = policy::NoticeSeen{device, Seconds(now), Seconds(20)};
    if (random.below(8) == 0)
      seen = policy::PriceSeen{"cpu", "z-b", Seconds(now),
                               random.below(3) == 0 ? policy::kNotOffered : random.uniform()};
    JobRenting other = renting(job(700));
    const auto restored = other.restore(one.state(), "x");
    ASSERT_TRUE(restored.has_value()) << restored.error().message;
    ASSERT_EQ(other.observe(seen), one.observe(seen)) << i;
    ASSERT_EQ(other.state(), one.state()) << i;
  }
}

TEST(JobRenting, RefusesAnotherJobsState) {
  JobRenting one = renting(job(700));
  RentingJob fewer = job(700);
  fewer.machines.pop_back();
  JobRenting other = renting(fewer);
  EXPECT_EQ(other.restore(one.state(), "r.json").error().message,
            "r.json: machines are not those of this job, a, b, c");
}

}  // namespace
}  // namespace motley::elastic
