#include "motley/adapt/learned_options.h"

#include <gtest/gtest.h>

#include "motley/base/json.h"
#include "peers/policies/policies.h"

namespace motley::adapt {
namespace {

DeviceLimits limited(const char* name, std::int64_t most) {
  return {.device = name, .least = 1, .most = most, .prior = {}};
}

/// a takes 1 ms per sample, b 2 ms; 3 ms of exchange follow, without overlap.
policy::StepSeen balanced_step(std::int64_t step, std::int64_t a, std::int64_t b) {
  const double of_a = 0.001 * static_cast<double>(a), of_b = 0.002 * static_cast<double>(b);
  policy::StepSeen seen{.step = step, .took = Seconds(std::max(of_a, of_b) + 0.003)};
  seen.global_batch = a + b;
  seen.devices = {{"a", a, {of_a}, of_a, {0}}, {"b", b, {of_b}, of_b, {0}}};
  seen.exchange = {0.003};
  return seen;
}

LearnedOptions from_nothing() {
  return LearnedOptions({{limited("a", 1000), {}, "here", 4}, {limited("b", 50), {}, "here", 4}},
                        {{.devices = 2}});
}

TEST(LearnedOptions, AreLearnedFromSteps) {
  LearnedOptions source = from_nothing();
  for (std::int64_t step = 0; step < 6; ++step) source.observe(balanced_step(step, 20, 10));
  for (std::int64_t step = 6; step < 12; ++step) source.observe(balanced_step(step, 40, 20));
  ASSERT_EQ(source.options().size(), 1u);
  const BatchOption& both = source.options()[0];
  ASSERT_TRUE(verify_option(both));
  EXPECT_EQ(both.per_hour, 4);
  EXPECT_NEAR(work_seconds(both.devices[0], 40), 0.040, 0.001);
  EXPECT_NEAR(work_seconds(both.devices[0], 80), 0.080, 0.006);
  EXPECT_NEAR(work_seconds(both.devices[1], 20), 0.040, 0.001);
  EXPECT_NEAR(both.exchange.tail.value, 0.003, 1e-6);
  // a has had 40 samples: trusted up to 120. b's memory holds 50.
  EXPECT_EQ(both.devices[0].points.back().samples, 120);
  EXPECT_EQ(both.devices[1].points.back().samples, 50);
  // Balanced: a gets twice as many, up to b's limit.
  const std::vector<std::int64_t> samples = split_batch(both, 90);
  EXPECT_NEAR(static_cast<double>(samples[0]), 60, 3);
}

TEST(LearnedOptions, KeepStillUnderJitter) {
  LearnedOptions source = from_nothing();
  for (std::int64_t step = 0; step < 8; ++step) source.observe(balanced_step(step, 20, 10));
  const std::int64_t version = source.version();
  for (std::int64_t step = 8; step < 30; ++step) {
    policy::StepSeen seen = balanced_step(step, 20, 10);
    const double jitter = step % 2 == 0 ? 1.004 : 0.996;
    for (policy::DeviceStep& each : seen.devices) each.end *= jitter;
    source.observe(seen);
  }
  EXPECT_EQ(source.version(), version);
}

// Three devices were seen; the prior of two is 2 ms less, and so is the estimate.
TEST(LearnedOptions, AGroupThatHasNotTrainedIsOffAsTheNextOneThatHas) {
  const CurvePrior prior{{{{{{1, 0.001}, {100, 0.1}}}}, {{{1, 0.001}, {100, 0.1}}}, {0}}, 0.1};
  std::vector<LearnedDevice> devices = {
      {limited("a", 100)}, {limited("b", 100)}, {limited("c", 100)}};
  for (LearnedDevice& each : devices) each.limits.prior = prior;
  LearnedOptions source(devices, {{.devices = 2, .exchanges = cost::GroupExchanges{{0.004}, 0}},
                                  {.devices = 3, .exchanges = cost::GroupExchanges{{0.006}, 0}}});
  EXPECT_NEAR(source.options()[0].exchange.tail.value, 0.004, 1e-9);
  policy::StepSeen seen{.step = 0, .took = Seconds(0.020)};
  for (const char* name : {"a", "b", "c"}) seen.devices.push_back({name, 10, {0.01}, 0.01, {0}});
  seen.exchange = {0.006};
  source.observe(seen);
  EXPECT_NEAR(source.options()[1].exchange.tail.value, 0.010, 1e-9);
  EXPECT_NEAR(source.options()[0].exchange.tail.value, 0.008, 1e-9);
}

/// a alone: two micro-batches of 1 ms per sample plus 2 ms, and an update of 1 ms.
policy::StepSeen lone_step(std::int64_t step, std::int64_t samples) {
  const double took = 0.005 + 0.001 * static_cast<double>(samples);
  policy::StepSeen seen{.step = step, .took = Seconds(took)};
  seen.global_batch = samples;
  seen.devices = {{"a", samples, {}, took, {}}};
  return seen;
}

LearnedOptions one_or_both() {
  return LearnedOptions({{limited("a", 1000), {.most = 500}}, {limited("b", 50), {.most = 20}}},
                        {{.devices = 1}, {.devices = 2}});
}

// Not yet seen alone, a takes two steps of half the samples; its own steps are learned separately.
TEST(LearnedOptions, LearnApartWhatADeviceTakesAlone) {
  LearnedOptions source = one_or_both();
  for (std::int64_t step = 0; step < 8; ++step) source.observe(balanced_step(step, 20, 10));
  const auto alone = [&](double samples) {
    return work_seconds(source.options()[0].devices[0], samples);
  };
  const auto among_others = [&](double samples) {
    return work_seconds(source.options()[1].devices[0], samples);
  };
  EXPECT_EQ(source.options()[0].name, "1 device");
  EXPECT_NEAR(alone(40), 2 * among_others(20), 1e-9);
  EXPECT_NEAR(among_others(20), 0.020, 0.001);
  for (std::int64_t step = 8; step < 20; ++step) source.observe(lone_step(step, 40));
  EXPECT_NEAR(alone(40), 0.045, 0.001);
  EXPECT_NEAR(source.options()[0].exchange.tail.value, 0, 1e-9);
  EXPECT_NEAR(among_others(20), 0.020, 0.001);
  EXPECT_NEAR(source.options()[1].exchange.tail.value, 0.003, 1e-6);
  LearnedOptions other = one_or_both();
  ASSERT_TRUE(other.restore(parse_json(source.state().dump(), "s").value(), "s"));
  EXPECT_EQ(source.state(), other.state());
  EXPECT_FALSE(from_nothing().restore(source.state(), "s"));
}

// Memory ends its curve. A device seen only alone has the same curve in groups.
TEST(LearnedOptions, OfADeviceSeenAloneAreThoseOfItsSteps) {
  LearnedOptions source({{limited("a", 1000), {.most = 90}}}, {{.devices = 1}});
  EXPECT_EQ(source.options()[0].devices[0].points.back().samples, 90);
  for (std::int64_t step = 0; step < 8; ++step) source.observe(lone_step(step, 40));
  EXPECT_EQ(source.options()[0].devices[0].points.back().samples, 90);
  LearnedOptions both = one_or_both();
  for (std::int64_t step = 0; step < 8; ++step) both.observe(lone_step(step, 40));
  EXPECT_NEAR(work_seconds(both.options()[1].devices[0], 40), 0.045, 0.001);
}

// With priors each has its own; a device seen twice as slow is so in the other as well.
TEST(LearnedOptions, AreOffAloneAsAmongOthers) {
  const auto believed = [](double seconds) {
    return CurvePrior{{{}, {{{1, seconds}, {100, 100 * seconds}}}, {}}, 0.1};
  };
  std::vector<LearnedDevice> devices = {{limited("a", 100)}, {limited("b", 100)}};
  devices[0].limits.prior = believed(0.001);
  devices[0].alone = {.most = 100, .prior = believed(0.0015)};
  devices[1].limits.prior = believed(0.002);
  LearnedOptions source(devices, {{.devices = 1}, {.devices = 2}});
  EXPECT_NEAR(work_seconds(source.options()[0].devices[0], 40), 0.060, 1e-6);
  for (std::int64_t step = 0; step < 40; ++step) {
    policy::StepSeen seen = balanced_step(step, 40, 20);
    for (policy::DeviceStep& each : seen.devices) each.end *= 2;
    source.observe(seen);
  }
  EXPECT_NEAR(work_seconds(source.options()[0].devices[0], 40), 0.120, 0.002);
}

// As many micro-batches alone as in groups: so is its step.
TEST(LearnedOptions, AreOfWholeUnits) {
  LearnedOptions source(
      {{limited("a", 1000), {.micro_batches = 1, .most = 500}}, {limited("b", 50)}},
      {{.devices = 1}, {.devices = 2}}, 4);
  for (std::int64_t step = 0; step < 8; ++step) source.observe(balanced_step(step, 20, 8));
  ASSERT_EQ(source.options().size(), 2u);
  for (const BatchOption& option : source.options()) EXPECT_EQ(option.unit, 4);
  EXPECT_EQ(work_seconds(source.options()[0].devices[0], 20),
            work_seconds(source.options()[1].devices[0], 20));
  EXPECT_TRUE(split_batch(source.options()[1], 30).empty());
  for (const std::int64_t each : split_batch(source.options()[1], 28)) EXPECT_EQ(each % 4, 0);
}

TEST(LearnedOptions, GoOnIdenticalFromTheirText) {
  LearnedOptions one = from_nothing(), other = from_nothing();
  for (std::int64_t step = 0; step < 9; ++step) one.observe(balanced_step(step, 20 + step, 10));
  ASSERT_TRUE(other.restore(parse_json(one.state().dump(), "s").value(), "s"));
  EXPECT_EQ(one.state(), other.state());
  one.observe(balanced_step(9, 50, 30));
  other.observe(balanced_step(9, 50, 30));
  EXPECT_EQ(one.state(), other.state());
  EXPECT_EQ(one.options()[0].devices[0].points, other.options()[0].devices[0].points);
  LearnedOptions more({{limited("a", 9)}, {limited("b", 9)}, {limited("c", 9)}}, {{.devices = 3}});
  EXPECT_FALSE(one.restore(more.state(), "s"));
}

// The fastest present device is the first; what was learned about the others stays.
TEST(LearnedOptions, AreOfDevicesThatAreThere) {
  LearnedOptions source = one_or_both();
  for (std::int64_t step = 0; step < 8; ++step) source.observe(balanced_step(step, 20, 10));
  const std::int64_t version = source.version();
  source.set_present("a", false);
  EXPECT_NE(source.version(), version);
  ASSERT_EQ(source.options().size(), 1u);
  EXPECT_EQ(source.options()[0].devices[0].device, "b");
  EXPECT_EQ(source.options()[0].devices[0].points.back().samples, 20);  // limited by memory
  LearnedOptions other = one_or_both();
  ASSERT_TRUE(other.restore(source.state(), "s"));
  EXPECT_EQ(other.options().size(), 1u);
  source.set_present("b", false);
  EXPECT_TRUE(source.options().empty());
  source.set_present("a", true);
  source.set_present("b", true);
  ASSERT_EQ(source.options().size(), 2u);
  EXPECT_NEAR(work_seconds(source.options()[1].devices[0], 20), 0.020, 0.001);
}

// An unlisted device comes last; its state does not fit sources without it.
TEST(LearnedOptions, TakeInWhoIsSeen) {
  LearnedOptions source = from_nothing();
  for (std::int64_t step = 0; step < 8; ++step) {
    policy::StepSeen seen = balanced_step(step, 20, 10);
    seen.devices.push_back({"c", 5, {0.02}, 0.02, {0}});
    source.observe(seen);
  }
  ASSERT_EQ(source.options().size(), 2u);  // two of them, and all
  EXPECT_EQ(source.options()[1].devices[2].device, "c");
  EXPECT_NEAR(work_seconds(source.options()[1].devices[2], 5), 0.020, 0.001);
  EXPECT_EQ(source.options()[1].per_hour, 4);
  EXPECT_FALSE(from_nothing().restore(source.state(), "s"));
}

TEST(BatchPolicies, AreMadeByName) {
  for (const auto& [name, maker] : peers::batch_policies()) {
    BatchSetting setting;
    setting.batch.initial_batch = 8;
    setting.batch.bounds = {8, 64};
    setting.samples_per_pass = 100;
    const auto made = make_batch_policy(
        name, setting, std::make_unique<LearnedOptions>(from_nothing()), peers::batch_policies());
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_EQ((*made)->name(), name);
  }
  const auto none = make_batch_policy(
      "jabbas", {}, std::make_unique<LearnedOptions>(from_nothing()), peers::batch_policies());
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("jabas"), std::string::npos);
}

}  // namespace
}  // namespace motley::adapt
