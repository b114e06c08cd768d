#include "motley/control/planning/what_if.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/control/planning/binding.h"
#include "motley/testing/fake_outside.h"
#include "motley/testing/small_inputs.h"

namespace motley::control {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two machines at 3 and 1 an hour. An instruction takes 10 us on a core, so b takes twice a's time.
constexpr const char* kPriced = R"(schema = "motley.cluster/1"
name = "priced"
[[node]]
name = "a"
price_per_hour = 3
  [[node.device]]
  kind = "cpu"
  model = "x"
  speed = 0.8
[[node]]
name = "b"
price_per_hour = 1
  [[node.device]]
  kind = "cpu"
  model = "x"
  speed = 0.4
  memory = "1GiB"
[[link]]
all = true
bandwidth = "1Gbps"
latency = "10us"
)";

class WhatIfTest : public ::testing::Test {
 protected:
  WhatIfTest() {
    EXPECT_TRUE(write_mlp(directory_.file("mlp.motley")));
    asked_.cluster = cluster::parse_cluster(kPriced, "priced.toml").value();
    asked_.question.model = directory_.file("mlp.motley");
    asked_.question.global_batch = 24;
    asked_.choices.prices.profiles = directory_.file("profiles.db");
    asked_.choices.planner = "split";
  }

  WhatIf question(const std::string& text) const {
    auto parsed = parse_what_if(text, asked_);
    EXPECT_TRUE(parsed) << parsed.error().message;
    return *parsed;
  }

  std::vector<Consequence> consequences(const std::vector<std::string>& texts) const {
    std::vector<WhatIf> questions;
    for (const std::string& text : texts) questions.push_back(question(text));
    return find_consequences(questions, asked_, outside_);
  }

  plan::PlanOutcome planned(const cluster::Cluster& cluster, std::int64_t batch) const {
    const std::string path = directory_.file("edited.toml");
    EXPECT_TRUE(write_file_atomic(path, cluster::print_cluster(cluster)));
    Question there = asked_.question;
    there.cluster = path;
    there.global_batch = batch;
    Inputs inputs = read_inputs(there, listener_).value();
    Answer answer = find_plan(inputs, asked_.choices, outside_).value();
    add_variation(foresee(inputs, *answer.outcome.plan, answer.priced).value(), answer.outcome);
    return answer.outcome;
  }

  TemporaryDirectory directory_;
  mutable FakeWorkers workers_;
  FakeClock clock_{Seconds(1)};
  mutable RecordingListener listener_;
  const Outside outside_{workers_, clock_, listener_};
  Asked asked_;
};

TEST_F(WhatIfTest, AnAnswerIsThePlannersOnTheEditedFile) {
  for (const char* text : {"+1 a:0", "-b:0", "link all x2", "memory b:0 2GiB", "batch 48"}) {
    const WhatIf asked = question(text);
    const Consequence said = consequences({text})[0];
    ASSERT_TRUE(said.is_feasible()) << text << ": " << said.why_not;
    const plan::PlanOutcome wanted = planned(asked.machines.cluster, asked.global_batch);
    EXPECT_EQ(said.outcome.predicted_step, wanted.predicted_step) << text;
    EXPECT_EQ(*said.outcome.plan, *wanted.plan) << text;
  }
}

// Nothing more is measured. Measured times are used, and the answer names the modelled ones.
TEST_F(WhatIfTest, WhatNobodyMeasuredIsModelledAndSaid) {
  ASSERT_TRUE(consequences({"batch 24"})[0].is_feasible());
  asked_.choices.prices.missing = Missing::kModel;
  const auto said = consequences({"batch 24", "+1 b:0", "link all x2"});
  for (const Consequence& each : said) EXPECT_TRUE(each.is_feasible()) << each.why_not;
  EXPECT_THAT(said[0].modelled, ElementsAre());
  EXPECT_THAT(
      said[1].modelled,
      ::testing::AllOf(
          Contains(
              "exchanges among 2 ranks over gloo by route local take as long as by the fastest "
              "way that was measured"),
          Contains(
              "exchanges among 3 ranks over gloo by route 1Gbps+10us take what a ring among as "
              "many as were measured would")));
  EXPECT_THAT(said[2].modelled,
              ElementsAre("exchanges among 2 ranks over gloo by route 2Gbps+10us take what the "
                          "links say"));
}

TEST_F(WhatIfTest, SpeedAndCostOfAnAnswer) {
  Consequence said = consequences({"+1 a:0"})[0];
  ASSERT_TRUE(said.is_feasible()) << said.why_not;
  EXPECT_EQ(said.per_hour, 7);
  said.outcome.predicted_step = Seconds(0.5);
  EXPECT_EQ(said.samples_per_s(), 48);
  EXPECT_DOUBLE_EQ(*said.cost_per_sample(), 7.0 / 3600 / 48);
}

TEST_F(WhatIfTest, DevicesKeepTheNamesThatTheyHad) {
  const Consequence without = consequences({"-a:0"})[0];
  EXPECT_THAT(without.names, ElementsAre("b:0"));
  EXPECT_THAT(consequences({"+1 a:0"})[0].names, ElementsAre("a:0", "a:1", "b:0"));
}

TEST_F(WhatIfTest, ExcludedDevicesStayExcluded) {
  asked_.question.exclude = {"b:0"};
  const Consequence said = consequences({"+1 a:0"})[0];
  ASSERT_TRUE(said.is_feasible()) << said.why_not;
  EXPECT_EQ(said.per_hour, 6);
  for (const plan::Member& member : plan::members(*said.outcome.plan))
    EXPECT_NE(said.names[member.device.index()], "b:0");
}

TEST_F(WhatIfTest, AFaultOfOneQuestionIsItsAnswer) {
  const auto said = consequences({"memory b:0 1KiB", "+1 cuda@a", "batch x2"});
  EXPECT_TRUE(said[0].is_feasible()) << said[0].why_not;
  EXPECT_TRUE(said[2].is_feasible()) << said[2].why_not;
  asked_.choices.planner = "equal";
  const Consequence full = consequences({"memory b:0 1KiB"})[0];
  EXPECT_FALSE(full.is_feasible());
  EXPECT_TRUE(full.is_infeasible);
  EXPECT_THAT(full.why_not, HasSubstr("b:0 needs"));
  EXPECT_EQ(full.samples_per_s(), std::nullopt);
}

TEST_F(WhatIfTest, BatchesByNumberAndFactor) {
  EXPECT_EQ(question("batch 256").global_batch, 256);
  EXPECT_EQ(question("batch x0.5").global_batch, 12);
  EXPECT_EQ(question("batch x2").machines.cluster, asked_.cluster);
  for (const char* text : {"batch lots", "batch 0", "batch 1.5", "batch xx", "batch x1e30"})
    EXPECT_EQ(parse_what_if(text, asked_).error().message,
              fmt::format("'{}': found '{}', wanted samples a step such as 256, or x2; now 24",
                          text, text + 6));
  EXPECT_EQ(parse_what_if("batch", asked_).error().code, "explain.batch");
  EXPECT_EQ(parse_what_if("-c:0", asked_).error().kind, ErrorKind::kUsage);
}

TEST_F(WhatIfTest, TheObviousQuestions) {
  asked_.choices.planner = "equal";
  Question there = asked_.question;
  there.made = asked_.cluster;
  Inputs inputs = read_inputs(there, listener_).value();
  const Answer answer = find_plan(inputs, asked_.choices, outside_).value();
  Predicted predicted = foresee(inputs, *answer.outcome.plan, answer.priced).value();
  const auto texts = [&] {
    std::vector<std::string> found;
    for (const WhatIf& each : obvious_what_ifs(asked_, inputs, *answer.outcome.plan, predicted))
      found.push_back(each.what);
    return found;
  };
  EXPECT_THAT(texts(), ElementsAre("+1 a:0", "+1 b:0", "-a:0", "-b:0", "link all x2", "batch x2",
                                   "batch x0.5"));
  // Once b has no room, its memory is asked about and limits the plan.
  for (DevicePrediction& device : predicted.devices)
    if (device.name == "b:0") device.peak.value = (1 << 30) - 1;
  EXPECT_THAT(texts(), Contains("memory b:0 x2"));
  EXPECT_THAT(find_binding(inputs, *answer.outcome.plan, predicted).back().text,
              "memory of b:0: 1 GiB of 1 GiB, no room for a sample more");
}

TEST_F(WhatIfTest, OrderBySpeedAndByCost) {
  std::vector<Consequence> said(4);
  const auto set = [&](std::size_t i, double step, double price) {
    said[i].global_batch = 10;
    said[i].outcome.plan = plan::Plan();
    said[i].outcome.predicted_step = Seconds(step);
    said[i].per_hour = price;
  };
  set(0, 2, 1);  // 5 a second, 0.2 an hour for each of them
  set(2, 1, 4);  // 10 a second, 0.4
  set(3, 4, 0.1);
  EXPECT_THAT(order_by_speed(said), ElementsAre(2, 0, 3, 1));
  EXPECT_THAT(order_by_cost(said), ElementsAre(3, 0, 2, 1));
}

// A step of 100: a computes 90 and exchanges 10; b computes 40, exchanges 20 and waits 40.
TEST_F(WhatIfTest, WhatBindsIsTheLargestPartFirst) {
  Question there = asked_.question;
  there.made = asked_.cluster;
  const Inputs inputs = read_inputs(there, listener_).value();
  const plan::Plan plan{.global_batch = 24,
                        .replicas = plan::make_replicas(inputs.devices, {16, 8})};
  Predicted predicted;
  predicted.devices = {{"a:0", {.parts = {1, 90, 10, 0, 0}}},
                       {"b:0", {.parts = {1, 40, 20, 40, 0}}}};
  std::vector<std::string> texts;
  for (const Binding& each : find_binding(inputs, plan, predicted)) texts.push_back(each.text);
  EXPECT_THAT(texts, ElementsAre("compute: 90 % of the step on a:0",
                                 "waiting for others: 40 % of the step on b:0",
                                 "exchange that no compute hides: 20 % of the step on b:0; the "
                                 "slowest link is all (1 Gbps)"));
}

}  // namespace
}  // namespace motley::control
