#include "motley/adapt/batch_policy.h"

#include <gtest/gtest.h>

#include <cmath>

#include "motley/adapt/drawn_noise.h"
#include "motley/base/json.h"
#include "peers/policies/scaled_options.h"

namespace motley::adapt {
namespace {

// 0.01 s + 0.001 s per sample: alone without exchange, together 0.04 s more, at 3 times the price.
std::vector<BatchOption> one_or_two() {
  const std::vector<CurvePoint> line = {{0, 0.01}, {1000, 1.01}};
  return {{"one", {{"a", line}}, {}, 1},
          {"two", {{"a", line}, {"b", line}}, {.tail = Seconds(0.04)}, 3}};
}

BatchSettings settings_of(double batch) {
  return {.initial_batch = batch,
          .bounds = {.least = batch},
          .rule = LearningRateRule::kAdaScale,
          .objective = {},
          .change = Seconds(0.3)};
}

BatchPolicy make_policy(const BatchSettings& settings) {
  return BatchPolicy(settings, std::make_unique<peers::ScaledOptions>(
                                   peers::ScaledOptions::make(one_or_two()).value()));
}

/// A training on these devices: steps take the curves' times, decisions begin one step later.
class Training {
 public:
  Training(policy::Policy& policy, double noise, std::vector<policy::Share> shares)
      : policy_(policy), drawn_(std::vector<double>(100, 1.0), 1), noise_(noise), shares_(shares) {}

  std::vector<policy::Choice> step() {
    policy::StepSeen seen{.step = ++step_, .devices = {}};
    std::vector<std::int64_t> pieces;
    for (const policy::Share& share : shares_) {
      seen.global_batch += share.samples;
      seen.devices.push_back(
          {share.device, share.samples, {}, 0.01 + 0.001 * static_cast<double>(share.samples), {}});
      // In two micro-batches: a single device can be measured too.
      pieces.push_back(share.samples / 2);
      pieces.push_back(share.samples - share.samples / 2);
    }
    const auto options = one_or_two();
    const auto& option = options[static_cast<std::size_t>(find_option(options, shares_))];
    seen.took = step_seconds(option, samples_of(option, shares_));
    seen.at = at_ += seen.took;
    std::vector<policy::Choice> choices = policy_.observe(seen);
    policy::NoiseSeen noise = drawn_.draw({1, noise_}, pieces);
    noise.step = step_;
    for (policy::Choice& each : policy_.observe(noise)) choices.push_back(std::move(each));
    for (const policy::Choice& each : choices)
      if (const auto* batch = std::get_if<policy::UseBatch>(&each.action)) {
        changes_ += shares_ != batch->shares;
        shares_ = batch->shares;
        lr_factor_ = batch->lr_factor;
        largest_change_ = std::max(largest_change_, batch->lr_factor / last_lr_);
        last_lr_ = batch->lr_factor;
      }
    return choices;
  }
  void go(int steps) {
    while (steps-- > 0) step();
  }
  double batch() const {
    double batch = 0;
    for (const policy::Share& share : shares_) batch += static_cast<double>(share.samples);
    return batch;
  }
  std::size_t devices() const { return shares_.size(); }
  int changes() const { return changes_; }
  double lr_factor() const { return lr_factor_; }
  double largest_change() const { return largest_change_; }
  void set_noise(double noise) { noise_ = noise; }
  const std::vector<policy::Share>& shares() const { return shares_; }

 private:
  policy::Policy& policy_;
  DrawnNoise drawn_;
  double noise_;
  std::vector<policy::Share> shares_;
  std::int64_t step_ = 0;
  Seconds at_;
  int changes_ = 0;
  double lr_factor_ = 1, largest_change_ = 1, last_lr_ = 1;
};

TEST(BatchPolicy, TakesFewDevicesWhileTheBatchIsSmall) {
  // One device's best is sqrt(0.01 * 10 / 0.001) = 10; at 16 it takes 0.026 s, two 0.058.
  BatchPolicy policy = make_policy(settings_of(16));
  Training training(policy, 10, {{"a", 8}, {"b", 8}});
  training.go(200);
  EXPECT_EQ(training.devices(), 1u);
  EXPECT_EQ(training.batch(), 16);
  EXPECT_EQ(training.changes(), 1);
  // At noise 20000 two devices' line is 0.05 + 0.0005 B: sqrt(0.05 * 20000 / 0.0005) = 1414.
  training.set_noise(20000);
  training.go(1000);
  EXPECT_EQ(training.devices(), 2u);
  EXPECT_GT(training.batch(), 1000);
  EXPECT_LT(training.batch(), 2000);
}

// The factor is 74 / 84 at noise 10, and less at more noise. Once set, no more is requested.
TEST(BatchPolicy, LeavesTheRateOfASmallerBatchAsItIs) {
  BatchSettings settings = settings_of(64);
  settings.bounds = {.least = 32, .most = 64};
  BatchPolicy policy = make_policy(settings);
  Training training(policy, 10, {{"a", 64}});
  training.go(1000);
  EXPECT_EQ(training.batch(), 32);
  EXPECT_NEAR(training.lr_factor(), 32.0 / 64 * (10 + 64) / (10 + 32), 0.03);
  int asked = 0;
  for (int i = 0; i < 200; ++i)
    for (const policy::Choice& each : training.step())
      asked += std::holds_alternative<policy::UseBatch>(each.action);
  EXPECT_LE(asked, 2);
}

// The same devices with shares in multiples of 24.
TEST(BatchPolicy, AsksForWholeUnits) {
  std::vector<BatchOption> options = one_or_two();
  for (BatchOption& option : options) option.unit = 24;
  BatchSettings settings = settings_of(48);
  settings.bounds = {.least = 20, .most = 1000};
  BatchPolicy policy(settings, std::make_unique<peers::ScaledOptions>(
                                   peers::ScaledOptions::make(options).value()));
  Training training(policy, 10, {{"a", 24}, {"b", 24}});
  training.go(200);
  // sqrt(0.01 * 10 / 0.001) = 10: one unit, of one device.
  EXPECT_EQ(training.shares(), (std::vector<policy::Share>{{"a", 24}}));
  training.set_noise(20000);
  training.go(1000);
  // 41 units take 0.554 s, with 21 on one device; 40 take 0.53 s and are more per second.
  EXPECT_EQ(training.batch(), 960);
  for (const policy::Share& share : training.shares()) EXPECT_EQ(share.samples % 24, 0);
}

TEST(BatchPolicy, FollowsTheLearningRateInBoundedChanges) {
  BatchPolicy policy = make_policy(settings_of(16));
  Training training(policy, 20000, {{"a", 16}});
  training.go(500);
  EXPECT_LE(training.largest_change(), 2 * (1 + 1e-12));
  const double gain = batch_gain(training.batch(), 16, 20000);
  EXPECT_GT(gain, 40);  // so it takes six changes by two
  EXPECT_NEAR(training.lr_factor() / gain, 1, 0.1);
}

TEST(BatchPolicy, KeepsStillWhereTheIntervalAllowsBoth) {
  // One piece's optimum at noise 250 is sqrt(0.01 * 250 / 0.001) = 50, the present batch. The ratio
  // of two single moments varies by more than itself and changes are almost free, but the policy
  // waits until it knows. The estimate alone would change it five times.
  BatchSettings settings = settings_of(16);
  settings.initial_batch = 50;
  settings.bounds.most = 60;
  settings.change = Seconds(0.001);
  BatchPolicy policy = make_policy(settings);
  Training training(policy, 250, {{"a", 50}});
  training.go(1000);
  EXPECT_EQ(training.changes(), 0);
  EXPECT_NEAR(training.batch(), 50, 8);
}

TEST(BatchPolicy, JudgesASplitAsTheGroupItNeeds) {
  // b is never ready before 5 s, so a does all alone: that is group "one" with its exchange of 0.04
  // s, whatever "two" promises. sqrt(0.05 * 5 / 0.001) = 16: nothing to change.
  const DeviceCurve a{"a", {{0, 0.01}, {1000, 1.01}}}, b{"b", {{0, 5}, {1000, 6}}};
  std::vector<BatchOption> options = {{"one", {a}, {.tail = Seconds(0.04)}, 1},
                                      {"two", {a, b}, {}, 2}};
  BatchPolicy policy(settings_of(16), std::make_unique<peers::ScaledOptions>(
                                          peers::ScaledOptions::make(std::move(options)).value()));
  DrawnNoise drawn(std::vector<double>(100, 1.0), 4);
  for (int i = 0; i < 300; ++i) {
    policy.observe(policy::StepSeen{.step = i,
                                    .took = Seconds(0.066),
                                    .global_batch = 16,
                                    .devices = {{"a", 16, {}, 0.026, {}}}});
    for (const policy::Choice& choice : policy.observe(drawn.draw({1, 5}, {8, 8})))
      EXPECT_TRUE(std::holds_alternative<policy::MeasureNoise>(choice.action));
  }
}

TEST(BatchPolicy, ChangesNothingThatDoesNotPayUntilTheEnd) {
  // 100 steps of 0.058 s remain: one device would save half of these 5.8 s, a change costs 4 s.
  BatchSettings settings = settings_of(16);
  settings.change = Seconds(4);
  settings.iterations = 100;
  BatchPolicy policy = make_policy(settings);
  Training training(policy, 10, {{"a", 8}, {"b", 8}});
  training.go(100);
  EXPECT_EQ(training.changes(), 0);
  // Over ten thousand steps it pays, once a change's time is lost: after about 4 / (0.058 * 0.55).
  settings.iterations = 10000;
  BatchPolicy other = make_policy(settings);
  Training longer(other, 10, {{"a", 8}, {"b", 8}});
  longer.go(100);
  EXPECT_EQ(longer.changes(), 0);
  longer.go(100);
  EXPECT_EQ(longer.changes(), 1);
}

TEST(BatchPolicy, SavesMoneyWhereThatIsAskedFor) {
  // Two devices are never twice as fast, and cost three times as much.
  BatchSettings settings = settings_of(16);
  settings.objective.kind = ObjectiveKind::kCost;
  BatchPolicy policy = make_policy(settings);
  Training training(policy, 20000, {{"a", 8}, {"b", 8}});
  training.go(3000);
  EXPECT_EQ(training.devices(), 1u);
  EXPECT_GT(training.batch(), 300);  // sqrt(0.01 * 20000 / 0.001) = 447
}

TEST(BatchPolicy, TakesTheCheapestThatIsInTime) {
  // At noise 20000 one device does at most about 447 / 0.457 * 20016 / 20447 / 16 = 60 steps of the
  // initial batch per second, two up to 1414 / 0.757 * 20016 / 21414 / 16 = 109.
  const auto train = [](double seconds) {
    BatchSettings settings = settings_of(16);
    settings.objective = {ObjectiveKind::kDeadline, Seconds(seconds)};
    settings.iterations = 100000;
    BatchPolicy policy = make_policy(settings);
    Training training(policy, 20000, {{"a", 8}, {"b", 8}});
    training.go(300);
    return training.devices();
  };
  EXPECT_EQ(train(3600), 1u);  // 28 per second
  EXPECT_EQ(train(1200), 2u);  // 83
  EXPECT_EQ(train(300), 2u);   // out of reach: the fastest
}

TEST(BatchPolicy, LeavesADeviceThatLeaves) {
  BatchPolicy policy = make_policy(settings_of(16));
  Training training(policy, 20000, {{"a", 8}, {"b", 8}});
  training.go(1000);
  ASSERT_EQ(training.devices(), 2u);
  const auto choices = policy.observe(policy::LossSeen{"b", Seconds(100)});
  ASSERT_EQ(choices.size(), 1u);
  const auto& shares = std::get<policy::UseBatch>(choices[0].action).shares;
  ASSERT_EQ(shares.size(), 1u);
  EXPECT_EQ(shares[0].device, "a");
  EXPECT_NEAR(static_cast<double>(shares[0].samples), 447, 60);
  EXPECT_TRUE(policy.observe(policy::NoticeSeen{"c", Seconds(1), Seconds(2)}).empty());
}

TEST(BatchPolicy, LeavesADeviceBeforeAnythingIsKnown) {
  BatchPolicy policy = make_policy(settings_of(16));
  policy.observe(policy::StepSeen{.took = Seconds(0.058),
                                  .global_batch = 16,
                                  .devices = {{"a", 8, {}, 0.018, {}}, {"b", 8, {}, 0.018, {}}}});
  const auto choices = policy.observe(policy::NoticeSeen{"a", Seconds(1), Seconds(30)});
  // No option is b alone: nothing to request.
  EXPECT_TRUE(choices.empty());
  const auto others = policy.observe(policy::NoticeSeen{"b", Seconds(1), Seconds(30)});
  EXPECT_TRUE(others.empty());
  policy.observe(policy::ArrivalSeen{"a", Seconds(2)});
  const auto last = policy.observe(policy::LossSeen{"b", Seconds(3)});
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(std::get<policy::UseBatch>(last[0].action).shares,
            (std::vector<policy::Share>{{"a", 16}}));
}

TEST(BatchPolicy, ChoosesIdenticalFromItsState) {
  for (const int before : {0, 3, 20, 60}) {
    BatchPolicy one = make_policy(settings_of(16)), other = make_policy(settings_of(16));
    Training training(one, 20000, {{"a", 8}, {"b", 8}});
    training.go(before);
    const std::string text = one.state().dump();
    ASSERT_TRUE(other.restore(parse_json(text, "s").value(), "s"));
    DrawnNoise drawn(std::vector<double>(30, 1.0), 9);
    int choices = 0;
    for (int i = 0; i < 300; ++i) {
      const policy::StepSeen step{
          .step = i,
          .took = Seconds(0.058),
          .global_batch = 16,
          .devices = {{"a", 8, {}, 0.018, {}}, {"b", 8, {}, 0.018 + 0.0001 * i, {}}}};
      EXPECT_EQ(one.observe(step), other.observe(step));
      const policy::NoiseSeen noise = drawn.draw({1, 20000}, {4, 4, 4, 4});
      const auto first = one.observe(noise), second = other.observe(noise);
      EXPECT_EQ(first, second);
      choices += static_cast<int>(first.size());
    }
    EXPECT_GT(choices, 0);
    EXPECT_EQ(one.state(), other.state());
  }
}

TEST(BatchPolicy, RefusesTheStateOfAnother) {
  BatchPolicy policy = make_policy(settings_of(16));
  Json state = policy.state();
  state["version"] = 1;
  EXPECT_EQ(policy.restore(state, "s").error().message,
            "s: found the state of 'motley', version 1, wanted 'motley', version 3");
}

}  // namespace
}  // namespace motley::adapt
