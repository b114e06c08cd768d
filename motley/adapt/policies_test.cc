#include "motley/adapt/policies.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <numbers>

#include "motley/adapt/split_policy.h"
#include "motley/base/json.h"
#include "motley/base/random.h"
#include "peers/policies/policies.h"

namespace motley::adapt {
namespace {

using ::testing::ElementsAre;

/// Devices that take fixed[i] + seconds[i] * samples, and one exchange after half of it.
struct Toy {
  std::vector<double> fixed, seconds;
  std::int64_t batch = 0;
  double noise = 0, exchange = 0.001;
  SplitMix64 random{1};

  std::vector<DeviceLimits> limits() const {
    std::vector<DeviceLimits> limits;
    for (std::size_t i = 0; i < fixed.size(); ++i)
      limits.push_back({.device = "d" + std::to_string(i)});
    return limits;
  }
  double time(std::size_t i, std::int64_t samples) const {
    return fixed[i] + seconds[i] * static_cast<double>(samples);
  }
  policy::StepSeen see(std::int64_t step, const std::vector<std::int64_t>& samples) {
    policy::StepSeen seen{.step = step, .global_batch = batch};
    if (std::count(samples.begin(), samples.end(), 0) + 1 < std::ssize(samples))
      seen.exchange = {exchange};
    for (std::size_t i = 0; i < samples.size(); ++i) {
      if (samples[i] == 0) continue;
      const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
      const double normal = radius * std::cos(2 * std::numbers::pi * random.uniform());
      const double end = time(i, samples[i]) * std::exp(noise * normal);
      seen.devices.push_back({"d" + std::to_string(i), samples[i], {end / 2}, end, {0}});
    }
    return seen;
  }
};

/// Drives a policy; its splits begin three steps later.
struct Drive {
  Toy toy;
  std::vector<std::int64_t> samples;
  std::deque<std::pair<std::int64_t, std::vector<std::int64_t>>> asked;
  std::int64_t step = 0;
  std::vector<policy::Choice> last;

  explicit Drive(Toy of) : toy(std::move(of)), samples(even_samples(toy.limits(), toy.batch)) {}
  policy::StepSeen next() {
    ++step;
    while (!asked.empty() && asked.front().first <= step) {
      samples = asked.front().second;
      asked.pop_front();
    }
    return toy.see(step, samples);
  }
  void take(const std::vector<policy::Choice>& choices) {
    last = choices;
    for (const policy::Choice& choice : choices) {
      const auto* split = std::get_if<policy::UseSplit>(&choice.action);
      if (split == nullptr) continue;
      std::vector<std::int64_t> wanted(samples.size(), 0);
      for (const policy::Share& share : split->shares)
        wanted[std::stoul(share.device.substr(1))] = share.samples;
      asked.emplace_back(step + 3, wanted);
    }
  }
  void run(policy::Policy& policy, int steps) {
    for (int i = 0; i < steps; ++i) take(policy.observe(next()));
  }
};

Toy three_devices(double noise) {
  return {
      .fixed = {0.01, 0.02, 0.01}, .seconds = {0.001, 0.002, 0.004}, .batch = 120, .noise = noise};
}

std::vector<std::string> split_policy_names() {
  std::vector<std::string> names;
  for (const NamedSplitPolicy& each : peers::split_policies()) names.emplace_back(each.name);
  return names;
}

std::unique_ptr<policy::Policy> make_policy(std::string_view name, const SplitSetting& setting) {
  return make_split_policy(name, setting, peers::split_policies()).value();
}

class EachPolicy : public ::testing::TestWithParam<std::string> {};

// Requested splits have the batch's samples; restored at any step, a policy chooses the same.
TEST_P(EachPolicy, RestoredChoosesAsTheOriginal) {
  const Toy toy = three_devices(0.05);
  const SplitSetting setting{toy.limits(), 12};
  const auto policy = make_policy(GetParam(), setting);
  EXPECT_EQ(policy->name(), GetParam());
  Drive drive(toy);
  drive.samples = {60, 30, 30};
  int splits = 0;
  for (int i = 0; i < 60; ++i) {
    const auto other = make_policy(GetParam(), setting);
    ASSERT_TRUE(other->restore(parse_json(policy->state().dump(), "x").value(), "x"));
    if (i == 30) drive.toy.seconds[0] *= 2;
    const policy::StepSeen seen = drive.next();
    const auto choices = policy->observe(seen);
    ASSERT_EQ(other->observe(seen), choices) << "step " << i;
    ASSERT_EQ(other->state(), policy->state()) << "step " << i;
    for (const policy::Choice& choice : choices) {
      const auto* split = std::get_if<policy::UseSplit>(&choice.action);
      if (split == nullptr) continue;
      ++splits;
      std::int64_t sum = 0;
      for (const policy::Share& share : split->shares) sum += share.samples;
      EXPECT_EQ(sum, toy.batch);
    }
    drive.take(choices);
  }
  EXPECT_GT(splits, 0);
}

TEST_P(EachPolicy, RefusesAnothersState) {
  const SplitSetting setting{three_devices(0).limits()};
  const auto policy = make_policy(GetParam(), setting);
  for (const std::string& name : split_policy_names()) {
    const auto restored = policy->restore(make_policy(name, setting)->state(), "x");
    EXPECT_EQ(restored.has_value(), name == GetParam());
    if (!restored) {
      EXPECT_EQ(restored.error().code, "policy.state");
    }
  }
  EXPECT_FALSE(policy->restore(parse_json("[]", "x").value(), "x"));
}

INSTANTIATE_TEST_SUITE_P(Adapt, EachPolicy, ::testing::ValuesIn(split_policy_names()),
                         [](const auto& each) {
                           std::string name = each.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(SplitPolicies, SuggestForAnUnknownName) {
  EXPECT_EQ(make_split_policy("canikin", {}, peers::split_policies()).error().message,
            "unknown policy 'canikin', wanted one of motley even hetseq adaptdl lb-bsp cannikin, "
            "did you mean 'cannikin'?");
}

// 0.01 + b / 1000, 0.02 + b / 500 and 0.01 + b / 250 are all t where b is 1000 t - 10, 500 t - 10
// and 250 t - 2.5: 1750 t = 142.5, t = 0.0814: 71.4, 30.7, 17.9. In whole samples 71, 31 and 18
// take 0.081, 0.082, 0.082; any other split takes longer.
TEST(SplitPolicy, FindsTheBestSplitInTenSteps) {
  Drive drive(three_devices(0));
  SplitPolicy policy(drive.toy.limits());
  drive.run(policy, 10);
  for (int i = 0; i < 50; ++i) {
    drive.run(policy, 1);
    double step = 0;
    for (std::size_t d = 0; d < 3; ++d) step = std::max(step, drive.toy.time(d, drive.samples[d]));
    EXPECT_LE(step, 0.082 * 1.02);
  }
}

TEST(SplitPolicy, AsksForOneSplitAtATime) {
  Drive drive(three_devices(0.02));
  SplitPolicy policy(drive.toy.limits());
  int waiting = 0;
  for (int i = 0; i < 60; ++i) {
    const bool waits = !drive.asked.empty();
    drive.run(policy, 1);
    // While a request has not begun, nothing more is requested.
    if (waits && !drive.asked.empty() && drive.asked.front().first > drive.step) {
      EXPECT_LE(drive.asked.size(), 1U);
      ++waiting;
    }
  }
  EXPECT_GT(waiting, 3);
}

// Already the best and without noise: it does not change.
TEST(SplitPolicy, StaysWhereItIsGood) {
  Toy toy{.fixed = {0.01, 0.01}, .seconds = {0.001, 0.001}, .batch = 64, .noise = 0.02};
  Drive drive(toy);
  SplitPolicy policy(drive.toy.limits());
  drive.run(policy, 20);
  int changes = 0;
  for (int i = 0; i < 200; ++i) {
    drive.run(policy, 1);
    changes += !drive.last.empty();
    EXPECT_LE(std::abs(drive.samples[0] - 32), 1);  // a sample is 1.4 % of the step
  }
  EXPECT_LE(changes, 4);
}

// 32 samples each of 1 and 2 ms take 64 ms, the best split 43. A free change is requested at once;
// one of 50 ms when 21 ms per step exceed it; one of 100 s never, in so few steps.
TEST(SplitPolicy, ChangesWhenAsMuchIsLostAsAChangeCosts) {
  Toy toy{.fixed = {0, 0}, .seconds = {0.001, 0.002}, .batch = 64};
  const auto steps_until_asked = [&](Seconds cost) {
    SplitPolicy policy(toy.limits(), cost);
    for (int step = 1; step <= 30; ++step)
      for (const policy::Choice& choice : policy.observe(toy.see(step, {32, 32})))
        if (std::holds_alternative<policy::UseSplit>(choice.action)) return step;
    return 0;
  };
  const int at_once = steps_until_asked(Seconds(0));
  ASSERT_GT(at_once, 0);
  EXPECT_GE(steps_until_asked(Seconds(0.05)), at_once + 2);
  EXPECT_LE(steps_until_asked(Seconds(0.05)), at_once + 3);
  EXPECT_EQ(steps_until_asked(Seconds(100)), 0);
}

TEST(SplitPolicy, FindsItAgainAfterADeviceSlowsAndSaysSo) {
  Drive drive(three_devices(0.01));
  SplitPolicy policy(drive.toy.limits());
  drive.run(policy, 40);
  drive.toy.fixed[0] *= 2;
  drive.toy.seconds[0] *= 2;
  std::vector<std::string> told;
  for (int i = 0; i < 15; ++i) {
    drive.run(policy, 1);
    for (const policy::Choice& choice : drive.last)
      if (const auto* tell = std::get_if<policy::Tell>(&choice.action))
        told.push_back(tell->device + " " + tell->text);
  }
  // 500 t - 10 twice and 250 t - 2.5: 1250 t = 142.5, t = 0.114: 47, 47 and 26.
  EXPECT_NEAR(static_cast<double>(drive.samples[0]), 47, 1.5);
  EXPECT_NEAR(static_cast<double>(drive.samples[2]), 26, 1.5);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_THAT(told[0], ::testing::MatchesRegex(
                           "d0 takes (1.9|2.0). times as long as before, since step 41"));
}

// d1's prior is a third of its time, trusted to 10 %.
TEST(SplitPolicy, NamesWhoFallsShortOfItsPrior) {
  Toy toy{.fixed = {0, 0}, .seconds = {0.001, 0.003}, .batch = 64};
  std::vector<DeviceLimits> limits = toy.limits();
  const cost::Curve line{{{0, 0}, {64, 0.064}}};
  for (DeviceLimits& each : limits) each.prior = CurvePrior{{{line}, line, {0}}, 0.1};
  SplitPolicy policy(limits);
  const auto choices = policy.observe(toy.see(1, {32, 32}));
  ASSERT_GE(choices.size(), 1U);
  EXPECT_EQ(choices[0].action,
            policy::Action(policy::Tell{
                "d1", "takes 3.00 times as long as predicted, which allowed for 13.0 %"}));
  for (const policy::Choice& choice : policy.observe(toy.see(2, {32, 32})))
    EXPECT_FALSE(std::holds_alternative<policy::Tell>(choice.action));
}

// A device gets at most three times its earlier samples, and no more than its memory holds.
TEST(SplitPolicy, ReachesNoFurtherThanThreeTimesAndTheLimits) {
  Toy toy{
      .fixed = {0, 0, 0, 0, 0, 0}, .seconds = {0.0001, 0.01, 0.01, 0.01, 0.01, 0.01}, .batch = 60};
  SplitPolicy free(toy.limits());
  const auto far = free.observe(toy.see(1, {10, 10, 10, 10, 10, 10}));
  ASSERT_EQ(far.size(), 1U);
  EXPECT_EQ(std::get<policy::UseSplit>(far[0].action).shares[0], (policy::Share{"d0", 30}));
  std::vector<DeviceLimits> limits = toy.limits();
  limits[0].most = 15;
  SplitPolicy held(limits);
  const auto near = held.observe(toy.see(1, {10, 10, 10, 10, 10, 10}));
  ASSERT_EQ(near.size(), 1U);
  EXPECT_EQ(std::get<policy::UseSplit>(near[0].action).shares[0], (policy::Share{"d0", 15}));
  SplitPolicy found(toy.limits());
  found.observe(policy::MemorySeen{"d0", 20});
  const auto held_later = found.observe(toy.see(1, {10, 10, 10, 10, 10, 10}));
  ASSERT_EQ(held_later.size(), 1U);
  EXPECT_EQ(std::get<policy::UseSplit>(held_later[0].action).shares[0], (policy::Share{"d0", 20}));
}

// d1 takes 1 s with any samples, d0 0.01 s per sample.
TEST(SplitPolicy, IdlesWhoMayAndHoldsUp) {
  Toy toy{.fixed = {0, 1}, .seconds = {0.01, 0.0001}, .batch = 40};
  std::vector<DeviceLimits> limits = toy.limits();
  limits[1].least = 0;
  Drive drive(toy);
  SplitPolicy policy(limits);
  drive.run(policy, 12);
  EXPECT_THAT(drive.samples, ElementsAre(40, 0));
}

// The second device helps, but an exchange takes more than all the work: 40 samples take 0.4 s on
// the first, and 0.24 s plus the exchange on both. Without a prior of exchanges this is tried once.
TEST(SplitPolicy, LeavesOneAloneWhereExchangesTakeMoreThanTheySave) {
  Toy toy{.fixed = {0, 0}, .seconds = {0.01, 0.015}, .batch = 40, .exchange = 0.5};
  std::vector<DeviceLimits> limits = toy.limits();
  for (DeviceLimits& each : limits) each.least = 0;
  for (const bool is_believed : {false, true}) {
    SplitPolicy policy(limits, Seconds(0),
                       is_believed ? std::vector<cost::GroupExchanges>{{{0.5}, 0}}
                                   : std::vector<cost::GroupExchanges>());
    Drive drive(toy);
    drive.samples = {40, 0};
    int changes = 0, together = 0;
    for (int i = 0; i < 100; ++i) {
      drive.take(policy.observe(drive.next()));
      changes += static_cast<int>(!drive.last.empty());
      together += static_cast<int>(drive.samples[1] > 0);
    }
    EXPECT_THAT(drive.samples, ElementsAre(40, 0));
    EXPECT_EQ(changes, is_believed ? 0 : 2);
    EXPECT_LE(together, 8);
  }
}

TEST(SplitPolicy, TakesInWhoSavesMoreThanExchangesTake) {
  Toy toy{.fixed = {0, 0}, .seconds = {0.01, 0.01}, .batch = 40, .exchange = 0.01};
  std::vector<DeviceLimits> limits = toy.limits();
  for (DeviceLimits& each : limits) each.least = 0;
  SplitPolicy policy(limits, Seconds(0), {{{0.3}, 0}});  // prior too long
  Drive drive(toy);
  drive.run(policy, 40);
  EXPECT_THAT(drive.samples, ElementsAre(20, 20));
}

/// Within one sample: after one step at new samples, part of it may be a first step's excess.
auto about(const std::string& device, std::int64_t samples) {
  return ::testing::AllOf(::testing::Field(&policy::Share::device, device),
                          ::testing::Field(&policy::Share::samples, ::testing::Ge(samples - 1)),
                          ::testing::Field(&policy::Share::samples, ::testing::Le(samples + 1)));
}

TEST(SplitPolicy, LeavesOutWhoIsLostAndTakesInWhoIsNew) {
  Toy toy{.fixed = {0, 0, 0}, .seconds = {0.001, 0.001, 0.001}, .batch = 90};
  std::vector<DeviceLimits> limits = toy.limits();
  limits.pop_back();
  SplitPolicy policy(limits);
  EXPECT_TRUE(policy.observe(toy.see(1, {45, 45, 0})).empty());
  EXPECT_TRUE(policy.observe(policy::LossSeen{"d1", Seconds(1)}).empty());
  // d1 took step 2 and left after it; d2 came.
  const auto choices = policy.observe(toy.see(2, {45, 0, 45}));
  EXPECT_TRUE(choices.empty());  // already even
  const auto uneven = policy.observe(toy.see(3, {60, 0, 30}));
  ASSERT_EQ(uneven.size(), 1U);
  EXPECT_THAT(std::get<policy::UseSplit>(uneven[0].action).shares,
              ElementsAre(about("d0", 45), about("d2", 45)));
}

// A returning device takes part before its first step, by what was learned about it.
TEST(SplitPolicy, TakesInWhoIsThereAgain) {
  Toy toy{.fixed = {0, 0, 0}, .seconds = {0.001, 0.001, 0.001}, .batch = 90};
  SplitPolicy policy(toy.limits());
  EXPECT_TRUE(policy.observe(toy.see(1, {30, 30, 30})).empty());
  EXPECT_TRUE(policy.observe(policy::LossSeen{"d1", Seconds(1)}).empty());
  EXPECT_TRUE(policy.observe(toy.see(2, {45, 0, 45})).empty());
  EXPECT_TRUE(policy.observe(policy::ArrivalSeen{"d1", Seconds(2)}).empty());
  const auto choices = policy.observe(toy.see(3, {45, 0, 45}));
  ASSERT_EQ(choices.size(), 1U);
  EXPECT_THAT(std::get<policy::UseSplit>(choices[0].action).shares,
              ElementsAre(about("d0", 30), about("d1", 30), about("d2", 30)));
}

// 0.001 b and 0.003 b meet at 48, 16; from 47, 17 five more take 0.052 against 0.036.
TEST(StepMover, MovesFiveAtATime) {
  Toy toy{.fixed = {0, 0}, .seconds = {0.001, 0.003}, .batch = 64};
  Drive drive(toy);
  const auto policy = make_policy("lb-bsp", {toy.limits()});
  drive.run(*policy, 1);
  ASSERT_EQ(drive.asked.size(), 1U);
  EXPECT_THAT(drive.asked[0].second, ElementsAre(37, 27));
  drive.run(*policy, 40);
  EXPECT_THAT(drive.samples, ElementsAre(47, 17));
}

// Epochs of 10 steps: even; then in inverse ratio to 0.012 and 0.032 s per sample (0.02 fixed and
// 0.01 and 0.03 per sample, at 10 each): 20 * 32/44 = 14.5; then the best by the lines: with 0.05
// of exchange after everything, 0.02 + 0.01 b = 0.02 + 0.03 (20 - b), b = 15.
TEST(Cannikin, IsEvenThenInverseThenOnLines) {
  Toy toy{.fixed = {0.02, 0.02}, .seconds = {0.01, 0.03}, .batch = 20};
  Drive drive(toy);
  const auto policy = make_policy("cannikin", {toy.limits(), 10});
  drive.run(*policy, 12);
  EXPECT_THAT(drive.samples, ElementsAre(10, 10));
  drive.run(*policy, 8);
  EXPECT_THAT(drive.samples, ElementsAre(15, 5));
  drive.run(*policy, 10);
  EXPECT_THAT(drive.samples, ElementsAre(15, 5));
}

// Useless observations, such as times that are not positive, lead to no choice.
TEST(SplitPolicies, StepsOfNoUseAreLetBy) {
  for (const std::string& name : split_policy_names()) {
    const auto policy = make_policy(name, {.devices = {{.device = "a:0"}, {.device = "b:0"}}});
    policy::StepSeen seen{.took = Seconds(0.1), .global_batch = 8};
    seen.devices = {{"a:0", 4, {}, -0.01, {}}, {"b:0", 4, {}, 0, {}}};
    for (seen.step = 0; seen.step < 3; ++seen.step)
      for (const policy::Choice& choice : policy->observe(seen))
        EXPECT_FALSE(std::holds_alternative<policy::UseSplit>(choice.action) &&
                     std::get<policy::UseSplit>(choice.action).shares.empty());
  }
}

}  // namespace
}  // namespace motley::adapt
