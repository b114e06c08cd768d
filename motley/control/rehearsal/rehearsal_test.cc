#include "motley/control/rehearsal/rehearsal.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/control/planning/slowed_split.h"
#include "motley/control/training/splits.h"
#include "motley/testing/small_question.h"

namespace motley::control {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// Takes the actions that a test gives it after certain steps.
class AskingAt : public policy::Policy {
 public:
  std::string_view name() const override { return "asking"; }
  std::vector<policy::Choice> observe(const policy::Observation& observation) override {
    if (const auto* refusal = std::get_if<policy::RefusalSeen>(&observation))
      refusals->push_back(refusal->why);
    const auto* seen = std::get_if<policy::StepSeen>(&observation);
    if (seen == nullptr) return {};
    steps->push_back(*seen);
    const auto found = asked.find(seen->step);
    if (found == asked.end()) return {};
    return {{found->second, Seconds(0.5), "because"}};
  }
  Json state() const override { return Json::object(); }
  Result<void> restore(const Json&, const std::string&) override { return {}; }

  std::map<std::int64_t, policy::Action> asked;
  std::shared_ptr<std::vector<policy::StepSeen>> steps =
      std::make_shared<std::vector<policy::StepSeen>>();
  std::shared_ptr<std::vector<std::string>> refusals = std::make_shared<std::vector<std::string>>();
};

/// 10 us an instruction, a bit more than 100 us an all-reduce (testing/fake_outside.h).
class RehearsalTest : public SmallQuestionTest {
 protected:
  RehearsalTest() {
    chosen_ =
        choose_plan(question_,
                    {.prices = {.profiles = directory_.file("profiles.db")}, .manual = {6, 2}},
                    outside_)
            .value();
    choices_.steps = 10;
    choices_.change_steps = 2;
    choices_.change_pause = Seconds(0.001);
  }

  Adaptation adaptation(std::map<std::int64_t, policy::Action> asked = {}) {
    Adaptation made = std::move(*adapt_split(*chosen_, std::nullopt, "even").value());
    auto policy = std::make_unique<AskingAt>();
    policy->asked = std::move(asked);
    steps_ = policy->steps;
    refusals_ = policy->refusals;
    made.policy = std::move(policy);
    made.make_policy = nullptr;
    return made;
  }

  Rehearsed run(Adaptation adaptation) {
    auto rehearsed = rehearse(*chosen_, std::move(adaptation), choices_, listener_);
    EXPECT_TRUE(rehearsed) << rehearsed.error().message;
    return rehearsed ? *rehearsed : Rehearsed();
  }

  static double sum(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0);
  }

  std::unique_ptr<const ChosenPlan> chosen_;
  RehearsalChoices choices_;
  std::shared_ptr<std::vector<policy::StepSeen>> steps_;
  std::shared_ptr<std::vector<std::string>> refusals_;
};

TEST_F(RehearsalTest, WithoutDecisionsEachStepIsThePredictedOne) {
  const Rehearsed rehearsed = run(adaptation());
  EXPECT_EQ(rehearsed.policy, "asking");
  ASSERT_THAT(rehearsed.step_s, SizeIs(10));
  const auto predicted = predict(chosen_->inputs, chosen_->planned, *chosen_->priced.costs, 1);
  EXPECT_THAT(rehearsed.step_s, Each(::testing::DoubleEq(predicted->seconds().value)));
  EXPECT_NEAR(rehearsed.total.value, sum(rehearsed.step_s), 1e-9);
  EXPECT_NEAR(rehearsed.steps_per_second(), 1 / predicted->seconds().value, 1e-6);
  ASSERT_THAT(rehearsed.decisions, SizeIs(1));
  EXPECT_EQ(rehearsed.decisions[0].policy, "start");
}

// A policy sees the curves' times at these samples, and the group's times.
TEST_F(RehearsalTest, PartsOfAStepAreThoseOfTheCurves) {
  run(adaptation());
  const search::StepEvaluator& evaluator = *chosen_->priced.evaluator;
  const auto times = evaluator.group_times(chosen_->inputs.devices);
  ASSERT_THAT(*steps_, SizeIs(10));
  EXPECT_THAT((*steps_)[0].devices, IsEmpty());
  const policy::StepSeen& seen = (*steps_)[1];
  EXPECT_EQ(seen.global_batch, 8);
  ASSERT_THAT(seen.devices, SizeIs(2));
  ASSERT_THAT(seen.exchange, SizeIs(times.exchange.size()));
  for (std::size_t k = 0; k < times.exchange.size(); ++k)
    EXPECT_NEAR(seen.exchange[k], times.exchange[k], 1e-8);
  for (std::size_t i = 0; i < 2; ++i) {
    const policy::DeviceStep& device = seen.devices[i];
    const auto& curves =
        evaluator.curves(chosen_->inputs.devices[i], search::SplitEvaluator::Setting::kShared);
    const auto samples = static_cast<double>(device.samples);
    EXPECT_EQ(device.samples, i == 0 ? 6 : 2);
    EXPECT_NEAR(device.end, curves.end.at(samples), 1e-8);
    ASSERT_THAT(device.ready, SizeIs(curves.ready.size()));
    for (std::size_t k = 0; k < device.ready.size(); ++k) {
      EXPECT_NEAR(device.ready[k], curves.ready[k].at(samples), 1e-8);
      EXPECT_NEAR(device.update[k], curves.update[k], 1e-8);
    }
  }
}

// Decided when 4 steps are done, it begins 2 later and costs its pause; nothing has to move.
TEST_F(RehearsalTest, AChangeBeginsWhenItIsPreparedAndCostsItsPause) {
  const Rehearsed rehearsed = run(adaptation({{3, policy::UseSplit{{{"a:0", 4}, {"a:1", 4}}}}}));
  ASSERT_THAT(rehearsed.decisions, SizeIs(2));
  const policy::Decision& decision = rehearsed.decisions[1];
  EXPECT_EQ(decision.seen_step, 4);
  EXPECT_EQ(decision.begins, 6);
  EXPECT_EQ(decision.choice.why, "the batch split 4:4: because");
  EXPECT_EQ(decision.choice.expected, Seconds(0.5));
  ASSERT_TRUE(decision.before && decision.came);
  EXPECT_NEAR(decision.before->value, rehearsed.step_s[5], 1e-12);
  EXPECT_NEAR(decision.came->value, rehearsed.step_s[7], 1e-12);
  EXPECT_EQ(rehearsed.changes, 1);
  EXPECT_EQ(rehearsed.paused, Seconds(0.001));
  EXPECT_NEAR(rehearsed.total.value, sum(rehearsed.step_s) + 0.001, 1e-9);
  EXPECT_EQ((*steps_)[5].plan, 0);
  EXPECT_EQ((*steps_)[6].plan, 1);
  EXPECT_EQ((*steps_)[7].devices[0].samples, 4);
  const Rehearsed late = run(adaptation({{8, policy::UseSplit{{{"a:0", 4}, {"a:1", 4}}}}}));
  EXPECT_EQ(late.changes, 0);
}

// A device that gets parameters receives them over the link.
TEST_F(RehearsalTest, WhatAChangeMovesTakesItsTime) {
  const Rehearsed rehearsed = run(adaptation(
      {{0, policy::UseSplit{{{"a:0", 8}}}}, {5, policy::UseSplit{{{"a:0", 4}, {"a:1", 4}}}}}));
  EXPECT_EQ(rehearsed.changes, 2);
  EXPECT_GT(rehearsed.paused.value, 0.002);
}

TEST_F(RehearsalTest, SlowDownsCountFromWhenTheyBegin) {
  const double step = run(adaptation()).step_s[0];
  choices_.conditions.slow_downs = {{"a:0", Seconds(3.5 * step), Seconds(1e6), 4}};
  const Rehearsed rehearsed = run(adaptation());
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(rehearsed.step_s[i], step, 1e-12);
  for (std::size_t i = 4; i < 10; ++i) EXPECT_GT(rehearsed.step_s[i], 2 * step);
}

TEST_F(RehearsalTest, SameSeedSameTraining) {
  choices_.conditions.jitter["a:1"] = {.per_instruction = 0.1, .per_step = 0.1};
  const Rehearsed first = run(adaptation()), second = run(adaptation());
  EXPECT_EQ(first.step_s, second.step_s);
  const auto [least, most] = std::minmax_element(first.step_s.begin(), first.step_s.end());
  EXPECT_LT(*least, *most);
}

// a:1 is lost in the middle of step 4. The step is lost, the pending change with a:1 is dropped,
// a:0 gets the batch, and a request with a:1 is refused.
TEST_F(RehearsalTest, WhoIsLeftDoesTheStepAgain) {
  const double step = run(adaptation()).step_s[0];
  choices_.conditions.absences = {{"a:1", Seconds(4.5 * step), Seconds(1e6)}};
  choices_.conditions.recovery.detection = Seconds(0.01);
  const Rehearsed rehearsed = run(adaptation({{3, policy::UseSplit{{{"a:0", 4}, {"a:1", 4}}}},
                                              {7, policy::UseSplit{{{"a:0", 5}, {"a:1", 3}}}}}));
  ASSERT_THAT(rehearsed.step_s, SizeIs(10));
  EXPECT_EQ(rehearsed.lost_steps, 1);
  EXPECT_NEAR(rehearsed.lost.value, 0.5 * step + 0.01, 1e-8);
  ASSERT_THAT(rehearsed.decisions, SizeIs(2));
  EXPECT_EQ(rehearsed.decisions[1].begins, 4);
  EXPECT_EQ(rehearsed.decisions[1].policy, "membership");
  EXPECT_EQ(rehearsed.decisions[1].choice.why, "a:0 alone: without a:1");
  EXPECT_THAT(*refusals_, ::testing::ElementsAre(HasSubstr("some of its devices are not there")));
  EXPECT_NEAR(rehearsed.total.value,
              sum(rehearsed.step_s) + rehearsed.paused.value + rehearsed.lost.value, 1e-8);
}

TEST_F(RehearsalTest, WhoComesBackTakesPartAgain) {
  const double step = run(adaptation()).step_s[0];
  choices_.steps = 30;
  choices_.conditions.absences = {{"a:1", Seconds(4.5 * step), Seconds(8.5 * step)}};
  const Rehearsed rehearsed = run(adaptation());
  ASSERT_THAT(rehearsed.decisions, SizeIs(3));
  EXPECT_EQ(rehearsed.decisions[2].choice.why, "the batch split 6:2: with a:1");
  EXPECT_EQ(rehearsed.changes, 2);
  EXPECT_NEAR(rehearsed.step_s.back(), step, 1e-12);
  const auto planned = rehearse_as_planned(*chosen_, adaptation(), choices_, listener_);
  ASSERT_TRUE(planned) << planned.error().message;
  EXPECT_EQ(planned->policy, "none");
  EXPECT_EQ(planned->step_s, rehearsed.step_s);
}

// All of the plan's devices are lost. Once they return they continue from the checkpoint.
TEST_F(RehearsalTest, WhereNobodyIsLeftTheLastCheckpointIs) {
  const double step = run(adaptation()).step_s[0];
  choices_.conditions.absences = {{"a:0", Seconds(6.5 * step), Seconds(1)},
                                  {"a:1", Seconds(6.5 * step), Seconds(1)}};
  choices_.conditions.recovery = {
      .detection = Seconds(0.01), .restart = Seconds(3), .checkpoint_every = 4};
  const Rehearsed rehearsed = run(adaptation());
  EXPECT_THAT(rehearsed.step_s, SizeIs(10));
  EXPECT_EQ(rehearsed.lost_steps, 3);  // the current one, and two
  EXPECT_GT(rehearsed.total, Seconds(4));
  EXPECT_EQ(rehearsed.stopped, "");
  choices_.conditions.absences[0].until = Seconds(INFINITY);
  choices_.conditions.absences[1].until = Seconds(INFINITY);
  EXPECT_EQ(run(adaptation()).stopped,
            "after 4 steps devices are gone for good and no plan is left");
}

// With a:1 alone no plan is possible. It saves and stops, and the job restarts when a:0 returns.
TEST_F(RehearsalTest, AJobThatStopsBeginsAgainWhenDevicesAreBack) {
  const double step = run(adaptation()).step_s[0];
  choices_.conditions.absences = {{"a:0", Seconds(6.5 * step), Seconds(1)}};
  choices_.conditions.recovery = {.restart = Seconds(3), .checkpoint_every = 4};
  Adaptation made = adaptation();
  made.split = [split = made.split](const std::vector<policy::Share>& shares) -> Result<Candidate> {
    if (shares.front().device == "a:1")
      return tl::make_unexpected(Error{ErrorKind::kInfeasible, "plan.memory", "too little memory"});
    return split(shares);
  };
  const Rehearsed rehearsed = run(std::move(made));
  EXPECT_THAT(rehearsed.step_s, SizeIs(10));
  EXPECT_EQ(rehearsed.lost_steps, 1) << "it saved what was done";
  EXPECT_NEAR(rehearsed.total.value, 1 + 3 + 4 * step, 1e-6);
  EXPECT_THAT(listener_.notes, ::testing::Contains(HasSubstr("stopping, as those that are left")));
  ASSERT_THAT(rehearsed.decisions, SizeIs(3));
  EXPECT_EQ(rehearsed.decisions[2].policy, "start");
  EXPECT_EQ(rehearsed.decisions[2].begins, 6);
}

TEST_F(RehearsalTest, WhoKnowsAllIsNotSlower) {
  const double step = run(adaptation()).step_s[0];
  choices_.conditions.slow_downs = {{"a:1", Seconds(3.2 * step), Seconds(1e6), 5}};
  choices_.conditions.absences = {{"a:0", Seconds(7.5 * step), Seconds(9 * step)}};
  const auto knowing = rehearse_knowing_all(*chosen_, adaptation(), choices_);
  ASSERT_TRUE(knowing) << knowing.error().message;
  EXPECT_THAT(knowing->step_s, SizeIs(10));
  EXPECT_EQ(knowing->lost_steps, 0);
  const auto planned = rehearse_as_planned(*chosen_, adaptation(), choices_, listener_);
  EXPECT_LT(knowing->total, planned->total);
}

// Each set of machine types has the speed of its best split.
TEST_F(RehearsalTest, SpeedsOfMachinesAreThoseOfTheBestSplits) {
  const std::vector<elastic::JobMachine> machines = {{"one", {"a:0"}, {}, 1, true},
                                                     {"two", {"a:1"}, {}, 1, false}};
  const elastic::SpeedTogether speed = speed_by_prices(*chosen_, machines);
  ASSERT_TRUE(speed);
  EXPECT_EQ(speed({}), 0);
  EXPECT_DOUBLE_EQ(speed({1}), 1 / best_step(*chosen_, {.gone = {"a:1"}})->value);
  EXPECT_EQ(speed({0}), speed({1}));
  EXPECT_DOUBLE_EQ(speed({0, 1}), 1 / best_step(*chosen_, {})->value);
}

/// a:0 is owned; a:1 is a spot machine of an offer at 3600 an hour.
RentRehearsal rented(double deadline, bool is_there = true) {
  RentRehearsal rent;
  elastic::Offer offer{.kind = "cpu", .zone = "z", .region = "z", .is_spot = true};
  offer.price_per_hour = 3600;
  offer.start.cold = Seconds(0.01);
  offer.losses_per_hour = 0;
  rent.question.market.offers = {offer};
  rent.machines = {{"own", {"a:0"}, {}, 1, true}, {"spot", {"a:1"}, 0, 1, is_there}};
  rent.choices.deadline = Seconds(deadline);
  return rent;
}

// a:0 alone takes twice the step and would be late, so a:1 is requested; it is always paid.
TEST_F(RehearsalTest, WhoIsLostIsRentedAgainWhereItWouldBeLate) {
  choices_.steps = 100;
  const double step = run(adaptation()).step_s[0];
  choices_.conditions.absences = {{"a:1", Seconds(4.5 * step), Seconds(4.6 * step)}};
  choices_.rent = rented(100 * step + 0.02);
  const Rehearsed rehearsed = run(adaptation());
  ASSERT_TRUE(rehearsed.rent);
  EXPECT_EQ(rehearsed.rent->policy, "market");
  EXPECT_EQ(rehearsed.rent->asked, 1);
  EXPECT_EQ(rehearsed.rent->came, 1);
  EXPECT_EQ(rehearsed.rent->lost, 1);
  EXPECT_EQ(rehearsed.lost_steps, 1);
  EXPECT_NEAR(rehearsed.rent->paid, rehearsed.total.value, 1e-6);
  EXPECT_NEAR(rehearsed.rent->spare.value, 100 * step + 0.02 - rehearsed.total.value, 1e-9);
  EXPECT_THAT(rehearsed.decisions,
              ::testing::Contains(::testing::Field(
                  &policy::Decision::choice,
                  ::testing::Field(&policy::Choice::why, HasSubstr("asks for 1 cpu spot z")))));
  choices_.rent->choices.rule = elastic::RentingRule::kNone;
  const Rehearsed alone = run(adaptation());
  EXPECT_EQ(alone.rent->policy, "none");
  EXPECT_EQ(alone.rent->asked, 0);
  EXPECT_NEAR(alone.rent->paid, 4.5 * step, 1e-6);
}

TEST_F(RehearsalTest, BeginsWithTheMachinesThatAreThere) {
  choices_.rent = rented(1e6, false);
  const Rehearsed rehearsed = run(adaptation());
  EXPECT_EQ(rehearsed.lost_steps, 0);
  EXPECT_EQ(rehearsed.rent->paid, 0);
  EXPECT_THAT(rehearsed.decisions[0].plan, ::testing::Not(HasSubstr("a:1")));
}

// Policies decide a second apart. Then the machine leaves after the change to a:0 alone.
TEST_F(RehearsalTest, WhoIsNotWantedIsGivenBackWithoutLosingAStep) {
  const double step = run(adaptation()).step_s[0];
  choices_.steps = static_cast<std::int64_t>(2 / step);
  choices_.rent = rented(900);
  choices_.rent->choices.gives_back = true;
  const Rehearsed rehearsed = run(adaptation());
  EXPECT_EQ(rehearsed.rent->returned, 1);
  EXPECT_EQ(rehearsed.rent->lost, 0);
  EXPECT_EQ(rehearsed.lost_steps, 0);
  EXPECT_EQ(rehearsed.changes, 1);
  EXPECT_NEAR(rehearsed.rent->paid, 1 + 3 * step, 2 * step);
  EXPECT_THAT(rehearsed.decisions[1].choice.why, HasSubstr("gives back spot"));
}

// With a notice before the loss, the change to a:0 alone begins in time and no step is lost.
TEST_F(RehearsalTest, ANoticeSavesAStep) {
  const double step = run(adaptation()).step_s[0];
  choices_.rent = rented(1e6);
  choices_.rent->question.market.offers[0].notice = Seconds(5 * step);
  choices_.conditions.absences = {{"a:1", Seconds(8.5 * step)}};
  const Rehearsed rehearsed = run(adaptation());
  EXPECT_EQ(rehearsed.lost_steps, 0);
  EXPECT_EQ(rehearsed.rent->lost, 1);
  EXPECT_EQ(rehearsed.changes, 1);
  ASSERT_THAT(rehearsed.step_s, SizeIs(10));
}

TEST_F(RehearsalTest, EndsWhereTheBudgetIsSpent) {
  const double step = run(adaptation()).step_s[0];
  choices_.rent = rented(1e6);
  choices_.rent->choices.budget = 4.5 * step;
  const Rehearsed rehearsed = run(adaptation());
  EXPECT_EQ(rehearsed.stopped, "the budget is spent");
  EXPECT_THAT(rehearsed.step_s, SizeIs(5));
}

TEST_F(RehearsalTest, ConditionsNameDevicesOfTheCluster) {
  choices_.conditions.slow_downs = {{"b:7", Seconds(0), Seconds(1), 2}};
  const auto refused = rehearse(*chosen_, adaptation(), choices_, listener_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "slow-down of b:7: the cluster has no such device");
}

TEST_F(RehearsalTest, PlansWithoutPricesAreRefused) {
  auto unpriced = std::make_unique<ChosenPlan>();
  unpriced->inputs = chosen_->inputs;
  unpriced->planned = chosen_->planned;
  const auto refused = rehearse(*unpriced, adaptation(), choices_, listener_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "the plan has no prices, so it cannot be simulated");
}

TEST_F(RehearsalTest, SplitsFollowSlownessAndWhoIsGone) {
  const auto shares = [&](DeviceSetting setting) {
    std::map<std::string, std::int64_t> shares;
    const auto found = find_split(*chosen_, setting);
    EXPECT_TRUE(found) << found.error().message;
    for (const policy::Share& share : found.value_or(std::vector<policy::Share>()))
      shares[share.device] = share.samples;
    return shares;
  };
  EXPECT_EQ(shares({.gone = {"a:0"}}), (std::map<std::string, std::int64_t>{{"a:1", 8}}));
  const auto slow = shares({.gone = {}, .slowness = [](const std::string& device) {
                              return device == "a:0" ? 1e4 : 1;
                            }});
  EXPECT_FALSE(slow.contains("a:0"));
  EXPECT_EQ(best_step(*chosen_, {.gone = {"a:0", "a:1"}}), std::nullopt);
  EXPECT_GT(best_step(*chosen_, {.gone = {"a:0"}})->value, 0);
  const auto none = find_split(*chosen_, {.gone = {"a:0", "a:1"}});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message, "no device is left");
}

}  // namespace
}  // namespace motley::control
