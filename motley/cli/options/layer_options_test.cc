#include "motley/cli/options/layer_options.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "motley/testing/verb_calls.h"

namespace motley::cli {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

// Two layers of 1 and 2 ms a sample forward, twice that backward, and 0.25 ms of update each.
Json times_of_layers(double factor) {
  Json times;
  for (const int micro : {1, 2, 4})
    for (const int layer : {0, 1}) {
      const double forward = factor * micro * (layer + 1) * 1e-3;
      times[std::to_string(micro)]["1"][std::to_string(layer)] = {forward, 2 * forward, 0.25e-3};
    }
  return times;
}

/// A layer profile in Sailor's form instead of a model; a V100 is half as fast as an A100.
class LayerVerbTest : public VerbTest {
 protected:
  LayerVerbTest() {
    write_cluster(R"(schema = "motley.cluster/1"
name = "rented"
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
)");
    write_times(times_of_layers(1));
    write("V100-16.json", times_of_layers(2).dump());
    write_sizes(4000);
  }
  void write_times(const Json& times) const { write("A100-40.json", times.dump()); }
  /// `first`: bytes of the first layer's parameters; the second's are 4000.
  void write_sizes(int first) const {
    Json sizes = {{"params_floats", 1000},
                  {"params_bytes", 4000},
                  {"act_output_bytes", 100},
                  {"act_mem_bytes", 1000}};
    Json changed = sizes;
    changed["params_bytes"] = first;
    write("info.json", Json{{"toy", {{"1", {{"0", changed}, {"1", sizes}}}}}}.dump());
  }
  Words layers(const std::string& verb, const Words& more) const {
    Words words = {verb,
                   "-C",
                   cluster_,
                   "--layer-model",
                   "toy",
                   "--layer-sizes",
                   directory_.file("info.json")};
    for (const char* kind : {"A100-40", "V100-16"})
      words.insert(words.end(),
                   {"--layer-times",
                    fmt::format("{}={}", kind, directory_.file(std::string(kind) + ".json"))});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Words planning(const Words& more = {}) const {
    Words words = {"--global-batch", "6"};
    words.insert(words.end(), more.begin(), more.end());
    return layers("plan", words);
  }
};

TEST_F(LayerVerbTest, SplitsTheBatch) {
  const Json found = answer(planning());
  // 9 ms a sample on one, 18 on the other: 4 and 2 take 36 ms; then the exchange and 0.5 ms.
  EXPECT_EQ(found.at("batch_split"), (Json{{"a:0", 4}, {"b:0", 2}}));
  EXPECT_GT(found.at("predicted_step_s"), 36.5e-3);
  EXPECT_NEAR(found.at("predicted_step_s"), 36.5e-3, 0.02 * 36.5e-3);
  // Parameters of 8000 bytes and Adam's two states on both. Device a peaks in the second layer's
  // backward pass: 4 samples' activations of 2000 bytes, that layer's gradients, those of its
  // activations. Device b adds all gradients and their packed copy. Inputs and outputs are small.
  EXPECT_NEAR(found.at("peak_bytes").at("a:0"), 24000 + 8000 + 4000 + 4000, 500);
  EXPECT_NEAR(found.at("peak_bytes").at("b:0"), 24000 + 8000 + 8000, 500);
}

TEST_F(LayerVerbTest, PlansStages) {
  const Json found = answer(planning({"--planner", "stages"}));
  const Json& plan = found.at("plan");
  std::set<int> samples;
  std::set<std::string> kinds;
  for (const Json& replica : plan.at("replicas")) {
    samples.insert(replica.at("samples").get<int>());
    for (const Json& stage : replica.at("stages")) kinds.insert(stage.at("kind"));
  }
  EXPECT_EQ(samples, (std::set<int>{2, 4}));
  EXPECT_EQ(kinds, (std::set<std::string>{"a100-40g", "v100-16g"}));
  EXPECT_NEAR(plan.at("step_s"), 36.5e-3, 0.02 * 36.5e-3);
  EXPECT_GT(found.at("lower_bound_s"), 35e-3);
  EXPECT_LE(found.at("lower_bound_s"), plan.at("step_s"));
  ASSERT_EQ(call(planning({"--planner", "stages"})), kDone);
  EXPECT_THAT(out_, HasSubstr("2 replicas of 1 stage; 1 of 1 a100-40g, 1 of 1 v100-16g"));
}

TEST_F(LayerVerbTest, SimulatesAPlanThatWasWritten) {
  const std::string plan = directory_.file("plan.json"), trace = directory_.file("trace.json");
  const Json planned = answer(planning({"--planner", "stages", "-o", plan}));
  EXPECT_EQ(parse_json(read_file(plan).value(), plan)->at("schema"), "motley.plan/1");
  const Json simulated = answer(layers("simulate", {"--plan", plan, "--trace", trace}));
  const double step = simulated.at("step_s");
  EXPECT_NEAR(planned.at("program_step_s"), step, 1e-6 * step);
  EXPECT_NEAR(planned.at("plan").at("step_s"), step, 1e-2 * step);
  EXPECT_GT(simulated.at("peak_bytes"), 8 * 4000);
  const Json events = parse_json(read_file(trace).value(), trace)->at("traceEvents");
  EXPECT_TRUE(std::any_of(events.begin(), events.end(), [](const Json& event) {
    return event.at("name").get<std::string>().find("motley::layer") != std::string::npos;
  }));
  ASSERT_EQ(call(layers("simulate", {"--plan", plan, "--print", "synth"})), kDone);
  EXPECT_THAT(out_, StartsWith("motley.program/1"));
  EXPECT_THAT(out_, HasSubstr("motley::layer_backward"));
}

TEST_F(LayerVerbTest, ItsGraphIsShownAndNobodyCanRunIt) {
  const std::string plan = directory_.file("plan.json");
  answer(planning({"--planner", "stages", "-o", plan}));
  ASSERT_EQ(call(layers("simulate", {"--plan", plan, "--print", "load"})), kDone);
  const std::string graph = write("layers.txt", out_);
  const std::vector<std::int64_t> samples(6);
  const NamedTensor tensors[] = {
      {"samples", {DType::kI64, {6, 1}, std::as_bytes(std::span(samples))}}};
  ASSERT_TRUE(write_safetensors(data_, tensors, {}));
  EXPECT_EQ(refusal({"run", "-m", graph, "-C", cluster_, "--plan", plan, "--data", data_, "--steps",
                     "1"}),
            "2 " + graph +
                ": is the graph of a layer profile, whose layers nobody can run; plan and simulate "
                "it with --layer-times, and to train export the model (python -m motley.export) "
                "[cli.layers]");
}

TEST_F(LayerVerbTest, AnotherProfilesPlanIsStale) {
  const std::string plan = directory_.file("plan.json");
  answer(planning({"--planner", "stages", "-o", plan}));
  write_sizes(8000);
  EXPECT_THAT(refusal(layers("simulate", {"--plan", plan})),
              MatchesRegex("4 .*/plan.json: plan: made for model [0-9a-f]+, this model is "
                           "[0-9a-f]+; plan again \\[plan.stale\\]"));
}

// A sample takes 3 and 6 ms in the layers on one kind, 6 and 12 on the other; an update 0.25 ms.
TEST_F(LayerVerbTest, PlansNarrowerSpacesOfStages) {
  for (const auto& [planner, step] :
       {std::pair("equal-stages", 54.5e-3),
        {"uniform-stages", 36.5e-3},
        {"amp", 42.25e-3},  // the slow kind has the first layer: 6 ms a stage, 7 times
        {"sailor", 42.25e-3},
        // The slow kind comes second and recomputes its forward pass: 16 ms, 6 times, after 4.
        {"harp", 100.25e-3},
        {"zorse", 36.5e-3}}) {
    const Json found = answer(planning({"--planner", planner}));
    EXPECT_EQ(found.at("planner"), planner);
    EXPECT_EQ(found.at("outcome"), "feasible") << planner;
    EXPECT_NEAR(found.at("plan").at("step_s"), step, 0.02 * step) << planner;
    EXPECT_LE(found.at("lower_bound_s"), found.at("plan").at("step_s")) << planner;
    EXPECT_THAT(found.at("why").back().get<std::string>(),
                EndsWith(" alone; the bound holds for all plans, by rates alone"));
  }
}

TEST_F(LayerVerbTest, TimesMustBePossible) {
  Json times = times_of_layers(1);
  times["2"]["1"]["0"][0] = -1e-3;
  write_times(times);
  EXPECT_EQ(refusal(planning()),
            "2 toy on a100-40g, tp 1, micro-batch 2, layer 0: forward takes -0.001 s, wanted more "
            "than 0 [cost.profile]");
  write("A100-40.json", "{");
  EXPECT_EQ(refusal(planning()),
            "2 " + directory_.file("A100-40.json") +
                ":1:2: syntax error while parsing object key - unexpected end of input; expected "
                "string literal [json.parse]");
}

TEST_F(LayerVerbTest, WhatGoesWithAModelIsRefused) {
  EXPECT_EQ(refusal(layers("simulate", {"--adapt", "split"})),
            "2 --adapt goes with a model's own plans; leave out the layer profile [cli.adapt]");
  EXPECT_EQ(refusal(layers("simulate", {"--survive", "1"})),
            "2 --survive goes with a model's own plans; leave out the layer profile [cli.survive]");
  EXPECT_EQ(refusal(layers("simulate", {})),
            "2 simulate with layers wants --plan PLAN.json [cli.layers]");
  EXPECT_EQ(refusal(layers("plan", {})),
            "2 how many samples a step? give --global-batch N [cli.global-batch]");
}

}  // namespace
}  // namespace motley::cli
