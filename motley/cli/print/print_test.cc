#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/base/json.h"
#include "motley/cli/print/print_answer.h"
#include "motley/cli/print/print_prediction.h"
#include "motley/testing/small_inputs.h"

namespace motley::cli {
namespace {

using ::testing::HasSubstr;

/// Two steps of 3 ms: 2 ms of compute, .5 of exchange, .4 of waiting and .1 idle.
control::Predicted example() {
  control::DevicePrediction device{.name = "a:0"};
  device.price.parts = {.steps = 2,
                        .compute = 4'000'000,
                        .exposed_communication = 1'000'000,
                        .waiting = 800'000,
                        .bubble = 200'000};
  device.peak = {1024, 2048, 4096};
  device.price.memory.parameters = Bytes(1024);
  device.price.memory.activations = Bytes(1024);
  device.price.memory.total = Bytes(2048);
  device.price.memory.largest = {{BufferId(3), Bytes(1024)}};
  device.price.largest = {"net.0.weight"};
  device.price.peak_at = "aten::mm net.0";
  control::Predicted predicted;
  predicted.step = {0.0025, 0.003, 0.004};
  predicted.basis = "9 earlier runs";
  predicted.devices = {device};
  return predicted;
}

TEST(PrintPrediction, ADeviceIsARowAndItsMemoryALineBelow) {
  EXPECT_EQ(print_prediction(example()),
            "step 3 ms, 80 % of runs 2.5 ms to 4 ms (by 9 earlier runs)\n"
            "\n"
            "  device       compute  exchange   waiting    bubble  peak memory (80 %), where\n"
            "  a:0             2 ms    500 us    400 us    100 us"
            "  2 KiB (1 KiB to 4 KiB), aten::mm net.0\n"
            "             parameters 1 KiB, activations 1 KiB\n"
            "             largest: net.0.weight 1 KiB\n");
}

TEST(PrintPrediction, WhatWasNotMeasuredSaysWhereItIsFrom) {
  control::Predicted predicted = example();
  predicted.devices[0].grounds = {cost::Origin::kKinds, "figures of mi300x"};
  EXPECT_THAT(print_prediction(predicted), HasSubstr("\n             times: figures of mi300x\n"));
}

TEST(AddPrediction, PartsAreSecondsOfOneStep) {
  Json object = Json::object();
  add_prediction(example(), object);
  EXPECT_EQ(object.at("predicted_step_interval_s"), (Json{0.0025, 0.004}));
  EXPECT_EQ(object.at("interval_basis"), "9 earlier runs");
  const Json& parts = object.at("breakdown").at("a:0");
  EXPECT_DOUBLE_EQ(parts.at("compute_s"), 0.002);
  EXPECT_DOUBLE_EQ(parts.at("exposed_comm_s"), 0.0005);
  EXPECT_DOUBLE_EQ(parts.at("waiting_s"), 0.0004);
  EXPECT_DOUBLE_EQ(parts.at("bubble_s"), 0.0001);
  EXPECT_EQ(object.at("times_from").at("a:0"), "measured");
  EXPECT_EQ(object.at("peak_interval_bytes").at("a:0"), (Json{1024.0, 4096.0}));
}

TEST(AddPrediction, MemoryHasEveryPartAlsoThoseThatAreNotThere) {
  Json object = Json::object();
  add_prediction(example(), object);
  const Json& memory = object.at("memory").at("a:0");
  for (const char* part : {"parameters", "states", "buffers", "mirrors", "inputs", "activations",
                           "gradients", "exchange", "scratch", "framework"})
    EXPECT_TRUE(memory.contains(std::string(part) + "_bytes")) << part;
  EXPECT_EQ(memory.at("parameters_bytes"), 1024);
  EXPECT_EQ(memory.at("states_bytes"), 0);
  EXPECT_EQ(memory.at("at"), "aten::mm net.0");
  EXPECT_EQ(memory.at("largest"), (Json::array({{{"name", "net.0.weight"}, {"bytes", 1024}}})));
}

TEST(AddPrediction, SaysWhereMemoryBesideTensorsIsFrom) {
  const auto memory_of = [](Bytes framework, bool is_measured) {
    control::Predicted predicted = example();
    predicted.devices[0].framework = framework;
    predicted.devices[0].is_framework_measured = is_measured;
    Json object = Json::object();
    add_prediction(predicted, object);
    return std::pair(object.at("memory").at("a:0").at("framework_from").get<std::string>(),
                     print_prediction(predicted));
  };
  EXPECT_EQ(memory_of(Bytes(0), false).first, "none");
  const auto [usual, usual_text] = memory_of(Bytes(512 << 20), false);
  EXPECT_EQ(usual, "usual figures");
  EXPECT_NE(usual_text.find("framework 512 MiB\n"), std::string::npos) << usual_text;
  const auto [measured, measured_text] = memory_of(Bytes(512 << 20), true);
  EXPECT_EQ(measured, "measured there");
  EXPECT_NE(measured_text.find("framework 512 MiB (measured)"), std::string::npos) << measured_text;
}

class PrintAnswerTest : public ::testing::Test {
 protected:
  const control::Inputs inputs_ = control::small_inputs(control::kEmulated, 14);
  plan::PlanOutcome outcome_{.planner = "split"};
};

TEST_F(PrintAnswerTest, APlanIsItsSamplesByDevice) {
  outcome_.reason = plan::Reason::kFeasible;
  outcome_.plan =
      plan::Plan{.global_batch = 14, .replicas = plan::make_replicas(inputs_.devices, {9, 5, 0})};
  outcome_.predicted_step = Seconds(0.5);
  outcome_.lower_bound = Seconds(0.25);
  outcome_.peak = {{DeviceId(1), Bytes(7)}};
  outcome_.idle = {DeviceId(2)};
  outcome_.equal_split = {.fits = true, .step = Seconds(2), .label = "5:5:4"};
  const Json object = outcome_to_json(outcome_, inputs_.cluster, 1.5);
  EXPECT_EQ(object.at("batch_split"), (Json{{"a:0", 9}, {"a:1", 5}}));
  EXPECT_EQ(object.at("peak_bytes"), (Json{{"a:1", 7}}));
  EXPECT_EQ(object.at("idle"), Json::array({"a:2"}));
  EXPECT_EQ(object.at("predicted_step_s"), 0.5);
  EXPECT_EQ(object.at("lower_bound_s"), 0.25);
  EXPECT_EQ(object.at("elapsed_s"), 1.5);
  EXPECT_EQ(object.at("outcome"), "feasible");
  EXPECT_EQ(object.at("baselines").at("equal_split"),
            (Json{{"step_s", 2.0}, {"fits", true}, {"label", "5:5:4"}}));
}

TEST_F(PrintAnswerTest, TimesThatNobodyKnowsAreNull) {
  outcome_.reason = plan::Reason::kFeasible;
  outcome_.plan = plan::Plan{.replicas = plan::make_replicas(inputs_.devices, {9, 5, 0})};
  EXPECT_EQ(outcome_to_json(outcome_, inputs_.cluster, 0).at("predicted_step_s"), nullptr);
}

TEST_F(PrintAnswerTest, NoPlanIsAnErrorUnlessJsonIsAskedFor) {
  outcome_.why = {"a:0 needs 2 MiB", "it has 1 MiB"};
  const auto plain = report_infeasible(outcome_, {}, {});
  ASSERT_FALSE(plain);
  EXPECT_EQ(plain.error(), (Error{ErrorKind::kInfeasible, "plan.infeasible",
                                  "no feasible plan: a:0 needs 2 MiB; it has 1 MiB"}));
  outcome_.reason = plan::Reason::kLimit;
  EXPECT_THAT(report_infeasible(outcome_, {}, {}).error().message,
              ::testing::StartsWith("no plan that fits was found: "));
  ::testing::internal::CaptureStdout();
  const auto json = report_infeasible(outcome_, {{"outcome", "limit"}}, {.json = true});
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr("\"outcome\": \"limit\""));
  EXPECT_EQ(json.value(), kInfeasible);
}

}  // namespace
}  // namespace motley::cli
