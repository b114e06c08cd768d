#include "peers/policies/batch_baselines.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "motley/adapt/drawn_noise.h"
#include "motley/base/json.h"
#include "peers/policies/scaled_options.h"

namespace motley::peers {
namespace {

// b takes twice as long per sample as a; together 0.1 s of exchange.
std::vector<adapt::BatchOption> fast_and_slow() {
  const std::vector<adapt::CurvePoint> fast = {{0, 0.01}, {1000, 1.01}},
                                       slow = {{0, 0.01}, {1000, 2.01}};
  return {{"fast", {{"a", fast}}, {}, 1},
          {"both", {{"a", fast}, {"b", slow}}, {.tail = Seconds(0.1)}, 2}};
}

PassSettings passes_of(std::int64_t samples) {
  return {.initial_batch = 20,
          .bounds = {.least = 20, .most = 1000},
          .samples_per_pass = samples,
          .local_batches = {10, 20, 40}};
}

template <typename Policy>
std::unique_ptr<Policy> make_baseline(const PassSettings& settings, std::int64_t unit = 1) {
  std::vector<adapt::BatchOption> options = fast_and_slow();
  for (adapt::BatchOption& option : options) option.unit = unit;
  return std::make_unique<Policy>(
      settings, std::make_unique<ScaledOptions>(ScaledOptions::make(options).value()));
}

struct Asked {
  int step;
  std::vector<policy::Share> shares;
};

std::vector<Asked> train(policy::Policy& policy, double noise, int steps,
                         std::vector<policy::Share> shares = {{"a", 10}, {"b", 10}}) {
  adapt::DrawnNoise drawn(std::vector<double>(100, 1.0), 1);
  std::vector<Asked> all;
  const auto options = fast_and_slow();
  for (int i = 1; i <= steps; ++i) {
    const auto& option = options[static_cast<std::size_t>(adapt::find_option(options, shares))];
    const std::vector<std::int64_t> samples = adapt::samples_of(option, shares);
    policy::StepSeen step{.step = i, .took = adapt::step_seconds(option, samples)};
    std::vector<std::int64_t> pieces;
    for (std::size_t k = 0; k < samples.size(); ++k) {
      step.global_batch += samples[k];
      step.devices.push_back(
          {option.devices[k].device,
           samples[k],
           {},
           adapt::work_seconds(option.devices[k], static_cast<double>(samples[k])),
           {}});
      pieces.insert(pieces.end(), {samples[k] / 2, samples[k] - samples[k] / 2});
    }
    policy::NoiseSeen seen = drawn.draw({1, noise}, pieces);
    seen.step = i;
    for (const policy::Observation& each : std::initializer_list<policy::Observation>{seen, step})
      for (const policy::Choice& choice : policy.observe(each)) {
        shares = std::get<policy::UseBatch>(choice.action).shares;
        all.push_back({i, shares});
      }
  }
  return all;
}

std::int64_t batch_of_shares(const std::vector<policy::Share>& shares) {
  std::int64_t batch = 0;
  for (const policy::Share& share : shares) batch += share.samples;
  return batch;
}

TEST(PassPolicy, CountsInUnits) {
  const adapt::BatchOption option{.unit = 4};
  EXPECT_EQ(batch_near(option, 26), 28);
  EXPECT_EQ(batch_near(option, 25.9), 24);
  EXPECT_EQ(split_evenly(3, 28, 4), (std::vector<std::int64_t>{12, 8, 8}));
}

TEST(AdaptDl, ChoosesEvenBatchesAtTheEndOfPasses) {
  const auto policy = make_baseline<AdaptDlPolicy>(passes_of(2000));
  const auto asked = train(*policy, 100, 110);
  ASSERT_FALSE(asked.empty());
  EXPECT_EQ(asked[0].step, 100);  // 100 steps of 20 samples
  // sqrt(0.11 * 100 / 0.001) = 105; candidates are 8 % apart, noise is known to a tenth.
  EXPECT_NEAR(static_cast<double>(batch_of_shares(asked[0].shares)), 105, 20);
  EXPECT_EQ(asked[0].shares[0].samples, asked[0].shares[1].samples);
}

TEST(AdaptDl, StaysWhereFivePercentAreNotGained) {
  const auto policy = make_baseline<AdaptDlPolicy>(passes_of(4700));
  // From 234, the optimum, 12 passes of 20 steps change nothing.
  EXPECT_TRUE(train(*policy, 500, 250, {{"a", 117}, {"b", 117}}).empty());
}

TEST(Cannikin, NeedsTwoPassesForItsLines) {
  const auto policy = make_baseline<CannikinPolicy>(passes_of(200));
  const auto asked = train(*policy, 5000, 20);
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[0].step, 10);
  // 10 samples took 0.02 and 0.03 s: 20 * 3/5 and 20 * 2/5.
  EXPECT_EQ(asked[0].shares, (std::vector<policy::Share>{{"a", 12}, {"b", 8}}));
  EXPECT_EQ(asked[1].step, 20);
  // The lines are exact: 0.11 s + B / 1500, sqrt(0.11 * 5000 * 1500) = 908.
  const std::int64_t batch = batch_of_shares(asked[1].shares);
  EXPECT_NEAR(static_cast<double>(batch), 908, 92);
  EXPECT_NEAR(static_cast<double>(asked[1].shares[0].samples) / static_cast<double>(batch), 2.0 / 3,
              0.01);
}

TEST(SimiGrad, MovesByATenthEachHundredSteps) {
  // At noise 5000 the similarity is 20 / (20 + 2 * 5000) = 0.002, below the target.
  PassSettings settings = passes_of(1000000);
  settings.similarity = 0.5;
  const auto policy = make_baseline<SimiGradPolicy>(settings);
  const auto asked = train(*policy, 5000, 300);
  ASSERT_EQ(asked.size(), 3u);
  EXPECT_EQ(asked[0].step, 100);
  EXPECT_EQ(batch_of_shares(asked[0].shares), 22);
  EXPECT_EQ(batch_of_shares(asked[2].shares), 27);  // 20 * 1.331 = 26.6
  // Without noise it is 1 and the batch would shrink, but it is at its least.
  const auto other = make_baseline<SimiGradPolicy>(settings);
  EXPECT_EQ(batch_of_shares(train(*other, 0.01, 100)[0].shares), 20);
}

TEST(Jabas, SplitsByMultiplesOfOneLocalBatch) {
  const adapt::BatchOption both = fast_and_slow()[1];
  // a and b are a pair: 90 samples become 5 times 2 * 10, 3 times 2 * 20 or 2 times 2 * 40.
  EXPECT_EQ(split_identical(both, 90, {10}), (std::vector<std::int64_t>{50, 50}));
  EXPECT_EQ(split_identical(both, 90, {20}), (std::vector<std::int64_t>{60, 60}));
  // Most samples per second: the largest, due to the fixed parts.
  EXPECT_EQ(split_identical(both, 90, {10, 20, 40}), (std::vector<std::int64_t>{80, 80}));
  EXPECT_EQ(split_identical(both, 90, {10, 20, 40}, 110), (std::vector<std::int64_t>{50, 50}));
  EXPECT_TRUE(split_identical(both, 2500, {10}).empty());
}

TEST(Jabas, ChoosesDevicesAtTheEndOfAPass) {
  // For 20 samples a alone takes 0.03 s, both 0.13.
  const auto policy = make_baseline<JabasPolicy>(passes_of(200));
  const auto asked = train(*policy, 5000, 10);
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].step, 10);
  // The batch's next multiple with the most samples per second: 40 alone.
  EXPECT_EQ(asked[0].shares, (std::vector<policy::Share>{{"a", 40}}));
}

// With six micro-batches all shares are multiples of 6, and batches stay within the limits.
TEST(Baselines, AskForWholeUnits) {
  PassSettings settings = passes_of(240);
  settings.initial_batch = 24;
  settings.bounds = {.least = 24, .most = 240};
  settings.local_batches = {6, 12, 24};
  settings.similarity = 0.5;
  const std::unique_ptr<policy::Policy> policies[] = {
      make_baseline<AdaptDlPolicy>(settings, 6), make_baseline<CannikinPolicy>(settings, 6),
      make_baseline<SimiGradPolicy>(settings, 6), make_baseline<JabasPolicy>(settings, 6)};
  for (const auto& policy : policies) {
    const auto asked = train(*policy, 5000, 500, {{"a", 12}, {"b", 12}});
    EXPECT_FALSE(asked.empty()) << policy->name();
    for (const Asked& each : asked) {
      EXPECT_GE(batch_of_shares(each.shares), 24) << policy->name();
      EXPECT_LE(batch_of_shares(each.shares), 240) << policy->name();
      for (const policy::Share& share : each.shares)
        EXPECT_EQ(share.samples % 6, 0) << policy->name();
    }
  }
}

// Half of 25 samples each is below the least.
TEST(AdaptDl, KeepsTheLimits) {
  PassSettings settings = passes_of(250);
  settings.bounds = {.least = 25, .most = 27};
  const auto policy = make_baseline<AdaptDlPolicy>(settings);
  const auto asked = train(*policy, 5000, 11, {{"a", 12}, {"b", 12}});
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].shares, (std::vector<policy::Share>{{"a", 13}, {"b", 13}}));
}

TEST(Baselines, ChooseIdenticalFromTheirState) {
  const std::function<std::unique_ptr<policy::Policy>()> makers[] = {
      [] { return make_baseline<AdaptDlPolicy>(passes_of(200)); },
      [] { return make_baseline<CannikinPolicy>(passes_of(200)); },
      [] { return make_baseline<SimiGradPolicy>(passes_of(200)); },
      [] { return make_baseline<JabasPolicy>(passes_of(200)); }};
  for (const auto& make : makers) {
    const auto one = make(), other = make();
    train(*one, 5000, 105);
    ASSERT_TRUE(other->restore(parse_json(one->state().dump(), "s").value(), "s")) << one->name();
    const auto first = train(*one, 5000, 105), second = train(*other, 5000, 105);
    ASSERT_EQ(first.size(), second.size()) << one->name();
    EXPECT_FALSE(first.empty()) << one->name();
    for (std::size_t i = 0; i < first.size(); ++i) EXPECT_EQ(first[i].shares, second[i].shares);
    EXPECT_EQ(one->state(), other->state());
    EXPECT_FALSE(makers[0]()->restore(makers[1]()->state(), "s"));
  }
}

}  // namespace
}  // namespace motley::peers
