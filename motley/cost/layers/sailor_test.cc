#include "motley/cost/layers/sailor.h"

#include <gmock/gmock.h>

namespace motley::cost {
namespace {

using ::testing::ElementsAre;

LayerTime seconds(double forward, double backward, double update) {
  return {Seconds(forward), Seconds(backward), Seconds(update)};
}

std::string times_message(const std::string& text) {
  LayerProfile profile;
  const auto added = add_sailor_times(text, "p.json", "GH-96", profile);
  return added ? "" : added.error().message;
}

TEST(SailorTimes, ReadsByMicroBatchDegreeAndLayer) {
  LayerProfile profile;
  const auto added = add_sailor_times(R"({
    "8": {"4": {"1": [3, 4, 5], "0": [1, 1e-6, 2]}},
    "1": {"4": {"0": [0.5, 1, 2], "1": [1, 2, 3]}}})",
                                      "p.json", "GH-96", profile);
  ASSERT_TRUE(added) << added.error().message;
  const LayerTable& table = profile.times.at("gh200-96g").at(4);
  EXPECT_THAT(table.at(8), ElementsAre(seconds(1, 1e-6, 2), seconds(3, 4, 5)));
  EXPECT_THAT(table.at(1), ElementsAre(seconds(0.5, 1, 2), seconds(1, 2, 3)));
}

TEST(SailorTimes, NamesTheKeyOfAFault) {
  EXPECT_EQ(times_message(R"({"8": {"4": {"0": [1, 2]}}})"),
            "p.json: key 8.4.0: found [1,2], wanted [forward, backward, update] in seconds");
  EXPECT_EQ(times_message(R"({"8": {"4": {"0": [1, 2, "3"]}}})"),
            "p.json: key 8.4.0.2: found \"3\", wanted a number");
  EXPECT_EQ(times_message(R"({"8": {"4": {"0": [1, 2, 3], "2": [1, 2, 3]}}})"),
            "p.json: key 8.4: no layer 1");
  EXPECT_EQ(times_message(R"({"8": {"x": {}}})"),
            "p.json: key 8: found {\"x\":{}}, wanted numbers of 1 or more as keys, not 'x'");
  EXPECT_EQ(times_message("[]"), "p.json: found [], wanted an object");
}

TEST(SailorSizes, CountsTheStateOfAdam) {
  LayerProfile profile;
  profile.model = "m";
  const std::string text = R"({"m": {"2": {"0": {"params_floats": 10, "params_bytes": 40,
    "act_output_bytes": 8, "act_mem_bytes": 24, "act_input_floats": 1}}}})";
  const auto added = add_sailor_sizes(text, "info.json", profile);
  ASSERT_TRUE(added) << added.error().message;
  EXPECT_THAT(profile.sizes.at(2),
              ElementsAre(LayerSize{10, Bytes(40), Bytes(160), Bytes(24), Bytes(8)}));
  profile.model = "n";
  EXPECT_EQ(add_sailor_sizes(text, "info.json", profile).error().message, "info.json: no key n");
  profile.model = "m";
  EXPECT_EQ(add_sailor_sizes(R"({"m": {"2": {"0": {"params_floats": -1}}}})", "info.json", profile)
                .error()
                .message,
            "info.json: key m.2.0.params_floats: found -1, wanted an integer of 0 to 10^12");
}

TEST(SailorNetwork, ReadsFitsByKindAndDevices) {
  const auto network = parse_sailor_network(
      R"({"inter": {"V100-16": {"1": [[0, 0, 2], 1e9], "4": [[0, 1, 8], 6e9]}},
          "intra": {"V100-16": {"2": [[0, 0, 60], 7e10]}}})",
      "net.json");
  ASSERT_TRUE(network) << network.error().message;
  const RateCurves& between = network->between.at({"v100-16g", "v100-16g"});
  // 2 GB/s, limited by the peak of 1: 1 MB in 1 ms.
  EXPECT_DOUBLE_EQ(transfer_time(between.at(1), Bytes(1'000'000), 1).value, 1e-3);
  // 8 + log2(1) = 8 GB/s, limited to 6.
  EXPECT_DOUBLE_EQ(transfer_time(between.at(4), Bytes(6'000'000), 1).value, 1e-3);
  EXPECT_EQ(network->inside.at("v100-16g").size(), 1u);
  EXPECT_EQ(network->devices_per_host.at("v100-16g"), 4);
}

TEST(SailorNetwork, RefusesRatesThatAreNotAboveZero) {
  const auto message = [](const std::string& fit) {
    return parse_sailor_network(R"({"inter": {"g": {"1": )" + fit + R"(}}, "intra": {}})", "n")
        .error()
        .message;
  };
  EXPECT_EQ(message("[[0, 0, 2], 0]"), "n: key inter.g.1.1: found 0, wanted a rate above zero");
  EXPECT_EQ(message("[[0, 0, -2], 1e9]"),
            "n: key inter.g.1.0: found [0,0,-2], wanted a rate above zero for 1 MB");
  EXPECT_EQ(message("[[0, 0], 1e9]"),
            "n: key inter.g.1.0: found [0,0], wanted an array of more than 2");
}

TEST(SailorNetwork, AddsPairsOfKinds) {
  StageNetwork network;
  const auto added = add_sailor_pairs(
      R"({"z": {"V100-16": {"4": {"z": {"A100-40": {"1": [[0, 0, 1], 1e9], "4": [[0, 0, 3], 4e9]}},
                                 "y": {}}}}})",
      "het.json", "z", network);
  ASSERT_TRUE(added) << added.error().message;
  const RateCurves& curves = network.between.at({"v100-16g", "a100-40g"});
  ASSERT_EQ(curves.size(), 1u);
  EXPECT_DOUBLE_EQ(transfer_time(curves.at(4), Bytes(3'000'000), 1).value, 1e-3);
}

constexpr const char* kPlan = R"({"pipeline_list": [{"num_stages": 2,
  "layers_per_stage": [[0, 1], [2]],
  "tmp_per_stage": [[[[["GH-96", 4, "z"]], 4], [[["GH-96", 4, "z"]], 2]],
                    [[[["V100-16", 4, "z"]], 1], [[["GH-96", 4, "z"]], 4]]],
  "dp": [2, 2]}], "mbs": 8, "gbs": 100, "real": 1.5, "max_mem": 1000})";

TEST(SailorPlan, ReadsStagesReplicasAndMeasurements) {
  const auto read = parse_sailor_plan(kPlan, "plan.json");
  ASSERT_TRUE(read) << read.error().message;
  // 100 samples in replicas of 8: ceil(100 / 16) = 7.
  const PipelinePlan wanted{.stages = {{0, 2, {{"gh200-96g", 4}, {"gh200-96g", 2}}},
                                       {2, 3, {{"v100-16g", 1}, {"gh200-96g", 4}}}},
                            .micro_batch = 8,
                            .micro_batches = 7};
  EXPECT_EQ(read->plan, wanted);
  EXPECT_EQ(read->step, Seconds(1.5));
  EXPECT_EQ(read->peak, Bytes(1000));
}

TEST(SailorPlan, NamesTheKeyOfAFault) {
  const auto message = [](std::string text, const std::string& what, const std::string& with) {
    text.replace(text.find(what), what.size(), with);
    return parse_sailor_plan(text, "plan.json").error().message;
  };
  EXPECT_EQ(message(kPlan, "[0, 1]", "[0, 2]"),
            "plan.json: key pipeline_list.0.layers_per_stage.0.1: found 2, wanted layer 1");
  EXPECT_EQ(message(kPlan, "\"gbs\": 100", "\"gbs\": 0"),
            "plan.json: key gbs: found 0, wanted an integer of 1 to 10^12");
  EXPECT_EQ(message(kPlan, "\"mbs\": 8, ", ""), "plan.json: no key mbs");
  EXPECT_EQ(
      message(kPlan, "\"GH-96\"", "7"),
      "plan.json: key pipeline_list.0.tmp_per_stage.0.0.0.0.0: found 7, wanted a device kind");
}

}  // namespace
}  // namespace motley::cost
