#include "motley/cost/layers/metis.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace motley::cost {
namespace {

MetisFile file(const std::string& name, const std::string& compute_ms, const std::string& memory_mb,
               const std::string& parameters = "[4194304, 12582912]", int layers = 2) {
  return {name, fmt::format(R"({{"model": {{"model_name": "GPT3", "num_layers": {},
    "parameters": {{"total_parameters_bytes": 1, "parameters_per_layer_bytes": {},
                   "activation_parameters_bytes": [2000, 4000]}}}},
    "execution_time": {{"total_time_ms": 9, "optimizer_time_ms": 8,
                        "layer_compute_total_ms": {}}},
    "execution_memory": {{"total_memory_mb": 1, "layer_memory_total_mb": {}}}}})",
                            layers, parameters, compute_ms, memory_mb)};
}

std::string message(const std::vector<MetisFile>& files) {
  const auto profile = parse_metis_profile(files);
  return profile ? "" : profile.error().message;
}

TEST(Metis, SplitsSumsAndTellsStateFromActivations) {
  const auto profile =
      parse_metis_profile({file("dir/DeviceType.A100_tp2_bs4.json", "[6, 12]", "[28, 70]"),
                           file("DeviceType.A100_tp2_bs2.json", "[3, 6]", "[22, 60]")});
  ASSERT_TRUE(profile) << profile.error().message;
  EXPECT_EQ(profile->model, "GPT3");
  const auto& times = profile->times.at("A100").at(2);
  ASSERT_EQ(times.size(), 2u);
  // 12 ms: a third forward; 12 of 16 MB of parameters: 6 of the optimizer's 8 ms.
  const LayerTime& time = times.at(4)[1];
  EXPECT_DOUBLE_EQ(time.forward.value, 4e-3);
  EXPECT_DOUBLE_EQ(time.backward.value, 8e-3);
  EXPECT_DOUBLE_EQ(time.update.value, 6e-3);
  // Layer 0: 22 MB at 2 samples, 28 at 4: 3 per sample, 16 of state. Outputs: 2000 bytes for 2.
  const LayerSize size = profile->sizes.at(2)[0];
  EXPECT_EQ(size.kept, Bytes(3 << 20));
  EXPECT_EQ(size.states, Bytes(16 << 20));
  EXPECT_EQ(size.gradients, Bytes(4 << 20));
  EXPECT_EQ(size.output, Bytes(1000));
  EXPECT_EQ(size.weights, 1 << 20);
}

TEST(Metis, AssumesTheStateOfOneMicroBatch) {
  const auto profile =
      parse_metis_profile({file("DeviceType.T4_tp1_bs2.json", "[1, 1]", "[22, 60]")});
  ASSERT_TRUE(profile) << profile.error().message;
  // 4 * 4 MB of state, 6 MB kept for 2 samples.
  EXPECT_EQ(profile->sizes.at(1)[0].states, Bytes(16 << 20));
  EXPECT_EQ(profile->sizes.at(1)[0].kept, Bytes(3 << 20));
}

TEST(Metis, RefusesOtherNames) {
  const std::string wanted = ": wanted a name like DeviceType.A100_tp2_bs4.json";
  for (const std::string name :
       {"A100_tp1_bs1.json", "DeviceType.A100_tp1.json", "DeviceType.A100_tp0_bs1.json",
        "DeviceType._tp1_bs1.json", "DeviceType.A100_tp1_bsx.json", "DeviceType.A100_tp1_bs1"})
    EXPECT_EQ(message({file(name, "[1, 1]", "[1, 1]")}), name + wanted);
}

TEST(Metis, NamesFileAndKeyOfAFault) {
  const std::string name = "DeviceType.T4_tp1_bs1.json";
  EXPECT_EQ(message({file(name, "[1]", "[1, 1]")}),
            name +
                ": key execution_time: key 'layer_compute_total_ms': 1 values, wanted "
                "num_layers = 2");
  EXPECT_EQ(message({file(name, "[1, -1]", "[1, 1]")}),
            name +
                ": key execution_time: key 'layer_compute_total_ms': layer 1: found -1, wanted "
                "a number of 0 to 10^12");
  EXPECT_EQ(message({file(name, "[]", "[]", "[]", 0)}),
            name + ": num_layers is 0, wanted 1 or more");
  EXPECT_EQ(message({{name, "{"}}).substr(0, name.size() + 1), name + ":");
}

TEST(Metis, RefusesFilesThatDisagree) {
  const std::string one = "DeviceType.T4_tp1_bs1.json", two = "DeviceType.T4_tp1_bs2.json";
  MetisFile other = file(two, "[1, 1]", "[1, 1]");
  other.text.replace(other.text.find("GPT3"), 4, "BERT");
  EXPECT_EQ(message({file(one, "[1, 1]", "[1, 1]"), other}),
            two + ": model 'BERT' of 2 layers, wanted 'GPT3' of 2 as in the other files");
  EXPECT_EQ(message({file(one, "[1, 1]", "[1, 1]"), file("x/" + one, "[1, 1]", "[1, 1]")}),
            "x/" + one + ": a second file of T4, tp 1, micro-batch 1");
}

}  // namespace
}  // namespace motley::cost
