#include "motley/control/planning/layers.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/base/file.h"
#include "motley/testing/fake_outside.h"
#include "motley/testing/small_inputs.h"

namespace motley::control {
namespace {

using ::testing::ElementsAre;

constexpr const char* kTwoKinds = R"(schema = "motley.cluster/1"
name = "two"
[[node]]
name = "a"
  [[node.device]]
  kind = "a100-40g"
[[node]]
name = "b"
  [[node.device]]
  kind = "v100-16g"
[[link]]
all = true
bandwidth = "100Gbps"
latency = "50us"
)";

/// Two layers of 1 and 2 ms a sample forward on an A100, twice that backward and 0.25 ms of update
/// each. On other kinds all but the update takes `factor` times as long.
std::string layer_times(double factor) {
  std::string text;
  for (const int micro : {1, 2, 4}) {
    const double first = factor * micro * 1e-3;
    text += fmt::format("{}\"{}\":{{\"1\":{{\"0\":[{},{},0.25e-3],\"1\":[{},{},0.25e-3]}}}}",
                        text.empty() ? "" : ",", micro, first, 2 * first, 2 * first, 4 * first);
  }
  return "{" + text + "}";
}

class LayersTest : public ::testing::Test {
 protected:
  LayersTest() {
    const std::string sizes =
        R"({"params_floats":1000,"params_bytes":4000,"act_output_bytes":100,"act_mem_bytes":1000})";
    EXPECT_TRUE(write_file_atomic(files_.sizes,
                                  R"({"toy":{"1":{"0":)" + sizes + R"(,"1":)" + sizes + "}}}"));
    for (const auto& [kind, factor] : {std::pair("A100-40", 1.0), std::pair("V100-16", 2.0)}) {
      const std::string path = directory_.file(std::string(kind) + ".json");
      EXPECT_TRUE(write_file_atomic(path, layer_times(factor)));
      files_.times.push_back(kind + ("=" + path));
    }
  }
  Answer plan(const PlanChoices& choices) {
    const Question question{
        .layers = read_layers(files_).value(), .made = cluster_, .global_batch = 6};
    Inputs inputs = read_inputs(question, listener_).value();
    auto answer = find_plan(inputs, choices, {workers_, clock_, listener_});
    EXPECT_TRUE(answer) << answer.error().message;
    return answer ? *std::move(answer) : Answer();
  }

  TemporaryDirectory directory_;
  LayerFiles files_{.sizes = directory_.file("info.json"), .model = "toy"};
  const cluster::Cluster cluster_ = cluster::parse_cluster(kTwoKinds, "two").value();
  const FakeClock clock_{Seconds(1)};
  FakeWorkers workers_;
  RecordingListener listener_;
};

// 9 ms a sample on one device and 18 on the other: 6 samples as 4 and 2 take 36 ms, as 3 and 3 54.
// Then come the update, 0.5 ms, and a small exchange of 8 kB.
TEST_F(LayersTest, SamplesAreSplitByWhatLayersTake) {
  const Answer best = plan({.planner = "auto"}), equal = plan({.planner = "equal"});
  EXPECT_THAT(plan::members(*best.outcome.plan),
              ElementsAre(plan::Member{DeviceId(0), 4}, plan::Member{DeviceId(1), 2}));
  EXPECT_GT(best.outcome.predicted_step.value, 36.5e-3);
  EXPECT_LT(best.outcome.predicted_step.value, 36.5e-3 * 1.02);
  EXPECT_NEAR((equal.outcome.predicted_step - best.outcome.predicted_step).value, 18e-3, 1e-9);
  EXPECT_EQ(best.elapsed_s, 1);
}

TEST_F(LayersTest, ManualSamplesOverrideThePlanner) {
  const Answer manual = plan({.planner = "auto", .manual = {6, 0}});
  EXPECT_EQ(manual.outcome.planner, "manual");
  EXPECT_NEAR(manual.outcome.predicted_step.value, 6 * 9e-3 + 0.5e-3, 1e-9);
}

// The choice is between two replicas and a pipeline. Replicas take 9 ms a sample on one device and
// 18 on the other: 4 and 2 of 6 samples in 36 ms. The pipeline has the second layer on the A100 and
// the first on the V100, 6 ms a stage and sample: (6 + 1) 6 = 42 ms.
TEST_F(LayersTest, StagesArePlannedFromTheSameFiles) {
  const auto answer = plan_stages(files_, cluster_, 6, clock_);
  ASSERT_TRUE(answer) << answer.error().message;
  ASSERT_TRUE(answer->outcome.best);
  EXPECT_GT(answer->outcome.best->price.step.value, 36e-3);
  EXPECT_LT(answer->outcome.best->price.step.value, 37e-3);
  EXPECT_GT(answer->outcome.lower_bound.value, 0.97 * 36e-3);
  EXPECT_EQ(answer->elapsed_s, 1);
  files_.network = directory_.file("network.json");
  files_.pairs = "pairs.json";
  EXPECT_TRUE(write_file_atomic(files_.network, R"({"inter": {}, "intra": {}})"));
  EXPECT_EQ(plan_stages(files_, cluster_, 6, clock_).error().message,
            "--layer-pairs wants --layer-zone: whose fits count?");
}

// A program takes 36 ms, the all-reduce of 8 kB, 0.5 ms of updates, and the loss's all-reduce, two
// messages of 50 us, which the search omits. Written and read again it takes as long.
TEST_F(LayersTest, PlansOfStagesAreSimulatedAsPrograms) {
  const auto answer = plan_stages(files_, cluster_, 6, clock_);
  ASSERT_TRUE(answer) << answer.error().message;
  const auto found = simulate_stages(files_, cluster_, *answer->outcome.best, *answer->costs);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_NEAR(found->step.value, answer->outcome.best->price.step.value + 100e-6, 1e-6);
  EXPECT_EQ(found->plan.replicas.size(), 2U);
  const std::string plan = directory_.file("plan.json"), cluster = directory_.file("two.toml");
  EXPECT_TRUE(write_file_atomic(plan, plan::print_plan(found->plan, cluster_)));
  EXPECT_TRUE(write_file_atomic(cluster, kTwoKinds));
  const auto again = simulate_layers(files_, plan, cluster, 1);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->trace, found->trace);
  EXPECT_EQ(again->step, found->step);
  ASSERT_EQ(again->spans.size(), 2U);
  EXPECT_NEAR(again->spans[0].last.value, 36e-3, 1e-9);
  EXPECT_NEAR(again->spans[0].compute.value, 36.5e-3, 1e-9);
  // Weights, gradients and moments of both layers, and a kilobyte per sample and layer.
  EXPECT_GT(again->spans[0].memory.total, Bytes(8 * 4000));
  EXPECT_EQ(simulate_layers(files_, plan, "", 1).error().message,
            "which devices? give -C CLUSTER.toml");
  const auto other = LayerFiles{.times = {files_.times[0]}, .sizes = files_.sizes, .model = "toy"};
  EXPECT_EQ(simulate_layers(other, plan, cluster, 1).error().message,
            "toy was not profiled on v100-16g; there is a100-40g");
}

// For the step alone, one device represents its kind.
TEST_F(LayersTest, TheStepOfAPlanNeedsNoProgramsOfAllDevices) {
  std::string text = kTwoKinds;
  for (const std::string kind : {"\"a100-40g\"", "\"v100-16g\""})
    text.insert(text.find(kind) + kind.size(), "\n  count = 4");
  const auto cluster = cluster::parse_cluster(text, "test").value();
  const auto answer = plan_stages(files_, cluster, 24, clock_);
  ASSERT_TRUE(answer) << answer.error().message;
  const search::PricedStagePlan& best = *answer->outcome.best;
  const auto all = simulate_stages(files_, cluster, best, *answer->costs);
  const auto step = simulate_stages(files_, cluster, best, *answer->costs, Simulated::kStep);
  ASSERT_TRUE(all && step);
  EXPECT_EQ(step->step, all->step);
  EXPECT_EQ(step->plan, all->plan);
  EXPECT_TRUE(step->program.devices.empty());
}

// A pipeline of two stages of one layer each gives the evaluator's step.
TEST_F(LayersTest, PipelinesOfOtherToolsAreSimulatedAsPrograms) {
  const std::string plan = directory_.file("pipeline.json");
  EXPECT_TRUE(write_file_atomic(plan, R"({"mbs": 1, "gbs": 4, "real": 0.05, "pipeline_list": [
    {"layers_per_stage": [[0], [1]], "tmp_per_stage":
      [[[[["A100-40", 1, "z"]], 1]], [[[["A100-40", 1, "z"]], 1]]]}]})"));
  EXPECT_EQ(simulate_layers(files_, plan, "", 1).error().message,
            "a pipeline wants --layer-network FILE");
  files_.network = directory_.file("network.json");
  files_.devices_per_host = 1;
  EXPECT_TRUE(write_file_atomic(files_.network, R"({
    "inter": {"A100-40": {"1": [[0, 0, 1.0], 1e9]}}, "intra": {"A100-40": {"2": [[0, 0, 1.0], 1e9]}}})"));
  const auto simulated = simulate_layers(files_, plan, "", 1);
  ASSERT_TRUE(simulated) << simulated.error().message;
  ASSERT_TRUE(simulated->estimate);
  EXPECT_NEAR(simulated->step.value, simulated->estimate->step.value, 1e-2 * 0.05);
  EXPECT_EQ(simulated->measured, Seconds(0.05));
  // The first layer's 3 ms, four times 6 ms, and at least three messages.
  EXPECT_GT(simulated->step.value, 27e-3);
}

TEST_F(LayersTest, SaysWhatIsMissingOfTheFiles) {
  const auto message = [&] { return read_layers(files_).error().message; };
  files_.sizes = "";
  EXPECT_EQ(message(), "--layer-times wants --layer-sizes FILE (llm_info.json)");
  files_.times = {"A100-40"};
  EXPECT_EQ(message(),
            "--layer-times: found 'A100-40', wanted KIND=FILE, for example A100-40=profile.json");
  files_.times = {"A100-40=" + directory_.file("nowhere.json")};
  EXPECT_EQ(message(), directory_.file("nowhere.json") + ": no such file");
}

}  // namespace
}  // namespace motley::control
