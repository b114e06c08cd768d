#include "motley/simulate/conditions.h"

#include <gtest/gtest.h>

#include <cmath>

#include "motley/program/program_text.h"
#include "motley/testing/label_cost.h"

namespace motley::simulate {
namespace {

using testing::LabelCost;

/// Devices a:0, b:0, ... compute `count` times for 1 ms each, then meet in a sum of no time.
program::Program meeting(int devices, int count) {
  std::string group = "group 0:", text;
  for (int rank = 0; rank < devices; ++rank) {
    group += " " + std::to_string(rank);
    text += "device \"" + std::string(1, static_cast<char>('a' + rank)) +
            ":0\" samples 0 first 0\nbuffer %0: state u8[0] \"s\"\n";
    for (int i = 0; i < count; ++i)
      text += "compute ^" + std::to_string(i) + ": aten::f() \"1000000\"\n";
    text += "transfer ^" + std::to_string(count) + ": motley::all_reduce(%0) group 0 wait ^" +
            std::to_string(count - 1) + "\n";
  }
  return program::parse_program(
             "motley.program/1\nmodel \"\" plan \"\" global_batch 8\n" + group + "\n" + text, "p")
      .value();
}

Conditions with_jitter(int devices, Jitter jitter, std::uint64_t seed = 1) {
  Conditions conditions;
  conditions.seed = seed;
  for (int rank = 0; rank < devices; ++rank)
    conditions.jitter[std::string(1, static_cast<char>('a' + rank)) + ":0"] = jitter;
  return conditions;
}

Distribution steps(int devices, int count, Jitter jitter, int runs) {
  return simulate_many(meeting(devices, count), LabelCost(0), with_jitter(devices, jitter),
                       {.runs = runs})
      .value()
      .step;
}

TEST(Distribution, HasTheUsualMeasures) {
  const Distribution samples({4, 1, 3, 2});
  EXPECT_EQ(samples.mean(), 2.5);
  EXPECT_EQ(samples.median(), 2.5);
  EXPECT_EQ(samples.quantile(0), 1);
  EXPECT_EQ(samples.quantile(1), 4);
  EXPECT_DOUBLE_EQ(samples.quantile(0.9), 3.7);  // 2.7 of the way from the first to the fourth
  // (1.5^2 + 0.5^2) x 2 = 5, over 3.
  EXPECT_DOUBLE_EQ(samples.deviation(), std::sqrt(5.0 / 3));
  EXPECT_EQ(Distribution().mean(), 0);
  EXPECT_EQ(Distribution().quantile(0.5), 0);
}

TEST(Conditions, WithoutAnyEveryRunIsTheSimulation) {
  const auto outcomes = simulate_many(meeting(2, 3), LabelCost(0), {}, {.runs = 3, .steps = 2});
  ASSERT_TRUE(outcomes);
  EXPECT_EQ(outcomes->step.samples(), std::vector<double>(6, 3e-3));
  EXPECT_EQ(outcomes->device_step[1].samples(), std::vector<double>(6, 3e-3));
  EXPECT_EQ(outcomes->total.samples(), std::vector<double>(3, 6e-3));
}

// The largest of n independent normal numbers is on average 0.564 (n = 2) and 0.846 (n = 3)
// standard deviations above the mean: 1/sqrt(pi) and 1.5/sqrt(pi). At 1 % of 1 ms, the lognormal is
// normal to a hundredth of that. The mean of 40,000 steps has a standard error of 0.004 sd.
TEST(Conditions, MembersThatMeetWaitForTheSlowest) {
  const auto above = [](int devices, Jitter jitter) {
    return (steps(devices, 1, jitter, 40000).mean() - 1e-3) / 1e-5;
  };
  EXPECT_NEAR(above(1, {.per_step = 0.01}), 0, 0.02);
  EXPECT_NEAR(above(2, {.per_step = 0.01}), 0.564, 0.02);
  EXPECT_NEAR(above(3, {.per_step = 0.01}), 0.846, 0.02);
  EXPECT_NEAR(above(3, {.per_instruction = 0.01}), 0.846, 0.02);
}

// 100 instructions of 1 ms. Independent draws of 10 % add up to sqrt(100) x 0.1 = 1 ms of 100, one
// common draw to 10 ms, both to sqrt(1 + 100) = 10.05 ms and a little. 20,000 steps give a standard
// deviation to 0.5 %. The mean stays: its standard error is 0.07 ms of 100.
TEST(Conditions, DrawsForInstructionsAverageOutAndDrawsForStepsDoNot) {
  const Distribution independent = steps(1, 100, {.per_instruction = 0.1}, 20000);
  EXPECT_NEAR(independent.deviation(), 1e-3, 0.02e-3);
  EXPECT_NEAR(independent.mean(), 100e-3, 0.03e-3);
  const Distribution common = steps(1, 100, {.per_step = 0.1}, 20000);
  EXPECT_NEAR(common.deviation(), 10e-3, 0.2e-3);
  EXPECT_NEAR(common.mean(), 100e-3, 0.3e-3);
  // A lognormal's median is its mean divided by the square root of 1 + 0.01.
  EXPECT_NEAR(common.median(), 100e-3 / std::sqrt(1.01), 0.3e-3);
}

TEST(Conditions, SameSeedSameOutcomes) {
  const auto samples = [](std::uint64_t seed) {
    return simulate_many(meeting(2, 5), LabelCost(0), with_jitter(2, {0.1, 0.1}, seed),
                         {.runs = 5, .steps = 2})
        .value()
        .step.samples();
  };
  EXPECT_EQ(samples(1), samples(1));
  EXPECT_NE(samples(1), samples(2));
}

// Steps of 1 ms on both; b computes at half speed from 2.5 to 4.5 ms. Steps 1 and 2 take 1. Step 3
// does 0.5 before and 0.5 at half speed: 1.5. Step 4 begins at 3.5 and has done 0.5 by 4.5, the
// rest by 5.0: 1.5. Step 5 takes 1. Together 6.
TEST(Conditions, ASlowDownHoldsUpThoseWhoMeet) {
  Conditions conditions;
  conditions.slow_downs = {{"b:0", Seconds(2.5e-3), Seconds(4.5e-3), 2}};
  const auto outcomes =
      simulate_many(meeting(2, 1), LabelCost(0), conditions, {.runs = 1, .steps = 5});
  EXPECT_EQ(outcomes->step.samples(), (std::vector<double>{1e-3, 1e-3, 1e-3, 1.5e-3, 1.5e-3}));
  EXPECT_EQ(outcomes->total.samples(), std::vector<double>{6e-3});
}

TEST(Conditions, SlowDownsThatOverlapMultiply) {
  // 1 ms of work at factor 2 from 0, at 6 from 1 ms: half is done by then; the rest takes 3 ms.
  Conditions conditions;
  conditions.slow_downs = {{"a:0", Seconds(0), Seconds(1), 2},
                           {"a:0", Seconds(1e-3), Seconds(1), 3}};
  EXPECT_EQ(simulate_many(meeting(1, 1), LabelCost(0), conditions, {.runs = 1})->total.samples(),
            std::vector<double>{4e-3});
}

// Steps of 1 ms, a checkpoint every 2. a is absent from 3.5 to 4.0 ms: 3 steps are done, the third
// is lost; detected 0.1 later, at 3.6. a is back at 4.0; 0.2 later the third step begins: steps 3,
// 4 and 5 at 4.2, 5.2 and 6.2, until 7.2. Steps done: 3 and 3 more.
TEST(Conditions, AnAbsenceCostsDetectionRestartAndLostSteps) {
  Conditions conditions;
  conditions.absences = {{"a:0", Seconds(3.5e-3), Seconds(4e-3)}};
  conditions.recovery = {Seconds(0.1e-3), Seconds(0.2e-3), 2};
  const auto outcomes =
      simulate_many(meeting(2, 1), LabelCost(0), conditions, {.runs = 1, .steps = 5});
  ASSERT_TRUE(outcomes);
  EXPECT_EQ(outcomes->total.samples(), std::vector<double>{7.2e-3});
  EXPECT_EQ(outcomes->lost_steps, 1);
  EXPECT_EQ(outcomes->step.count(), 6U);
  // Back before detection: 3.6 + 0.2, and 3 steps: 6.8.
  conditions.absences[0].until = Seconds(3.55e-3);
  EXPECT_EQ(simulate_many(meeting(2, 1), LabelCost(0), conditions, {.runs = 1, .steps = 5})
                ->total.samples(),
            std::vector<double>{6.8e-3});
}

TEST(Conditions, ADeviceThatStaysAwayStopsTheRun) {
  Conditions conditions;
  conditions.absences = {{"a:0", Seconds(1.5e-3)}};
  const auto outcomes =
      simulate_many(meeting(2, 1), LabelCost(0), conditions, {.runs = 2, .steps = 3});
  EXPECT_EQ(outcomes->stopped_runs, 2);
  EXPECT_EQ(outcomes->total.count(), 0U);
  EXPECT_EQ(outcomes->step.count(), 2U);
  // An absence after the last step does not count.
  EXPECT_EQ(simulate_many(meeting(2, 1), LabelCost(0), conditions, {.runs = 2})->stopped_runs, 0);
}

TEST(Conditions, AnAbsenceAtTheBeginDelaysTheRun) {
  Conditions conditions;
  conditions.absences = {{"a:0", Seconds(0), Seconds(2e-3)}};
  EXPECT_EQ(simulate_many(meeting(2, 1), LabelCost(0), conditions, {.runs = 1})->total.samples(),
            std::vector<double>{3e-3});
}

std::string error_of(const Conditions& conditions) {
  const auto outcomes = simulate_many(meeting(2, 1), LabelCost(0), conditions);
  return outcomes ? "" : outcomes.error().message;
}

TEST(Conditions, RefusesWhatIsNotPossible) {
  EXPECT_EQ(error_of(with_jitter(3, {})), "jitter of c:0: the program has no such device");
  EXPECT_EQ(error_of(with_jitter(1, {.per_step = -0.5})),
            "jitter of a:0: found a relative standard deviation of -0.5, wanted 0 to 10");
  Conditions conditions;
  conditions.slow_downs = {{"a:0", Seconds(1), Seconds(2), 0}};
  EXPECT_EQ(error_of(conditions),
            "slow-down of a:0: found a factor of 0, wanted above 0, up to 1e6");
  conditions.slow_downs = {{"a:0", Seconds(2), Seconds(1), 2}};
  EXPECT_EQ(error_of(conditions),
            "slow-down of a:0: found an end of 1, wanted one after its begin");
  conditions.slow_downs = {{"a:0", Seconds(-2), Seconds(1), 2}};
  EXPECT_EQ(error_of(conditions), "slow-down of a:0: found a begin of -2, wanted 0 to 1e9 s");
  conditions = {};
  conditions.absences = {{"z:0", Seconds(1), Seconds(2)}};
  EXPECT_EQ(error_of(conditions), "absence of z:0: the program has no such device");
  conditions = {};
  conditions.recovery.checkpoint_every = 0;
  EXPECT_EQ(error_of(conditions), "recovery: found a checkpoint every 0 steps, wanted 1 or more");
  conditions.recovery = {Seconds(-1), Seconds(0), 1};
  EXPECT_EQ(error_of(conditions), "recovery: found a time of -1 s, wanted 0 to 1e9");
}

}  // namespace
}  // namespace motley::simulate
