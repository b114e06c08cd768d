#include "motley/control/pricing.h"

#include <gtest/gtest.h>

#include "motley/base/file.h"
#include "motley/cost/device_keys.h"
#include "motley/testing/fake_outside.h"
#include "motley/testing/small_inputs.h"

namespace motley::control {
namespace {

constexpr const char* kTwoGpus = R"(schema = "motley.cluster/1"
name = "gpus"
[[node]]
name = "a"
  [[node.device]]
  kind = "cuda"
  model = "NVIDIA A10"
  [[node.device]]
  kind = "cuda"
  model = "NVIDIA L4"
  [[node.device]]
  kind = "cpu"
)";

class LearnFrameworkTest : public ::testing::Test {
 protected:
  void measure(const std::string& torch, const char* key, std::int64_t bytes) {
    cost::OpEntry entry{cost::device_key(inputs_.cluster.devices[0], torch), key};
    entry.scratch = Bytes(bytes);
    ASSERT_TRUE(store_->put(std::vector<cost::OpEntry>{entry}));
  }
  /// What a device needs beside 1 GiB of tensors.
  std::int64_t beside_a_gibibyte(std::size_t device) {
    EXPECT_TRUE(learn_framework(*store_, "2.15.0", inputs_));
    return cost::framework_bytes(inputs_.cluster.devices[device], Bytes(1 << 30)).value;
  }

  TemporaryDirectory directory_;
  Inputs inputs_ = small_inputs(kTwoGpus, 8);
  Result<cost::ProfileStore> store_ = open_store(directory_.file("profiles.db"));
};

TEST_F(LearnFrameworkTest, WhatWasNeverMeasuredIsOfUsualFigures) {
  // 512 MiB and 7.1 % of 2^30, which are 76235670.5.
  EXPECT_EQ(beside_a_gibibyte(0), (512 << 20) + 76235670);
  EXPECT_FALSE(inputs_.cluster.devices[0].framework);
  EXPECT_EQ(beside_a_gibibyte(2), 0);
}

TEST_F(LearnFrameworkTest, WhatWasMeasuredCountsOnThatKindOfDevice) {
  measure("2.15.1", cluster::kContextKey, 400 << 20);
  EXPECT_EQ(beside_a_gibibyte(0), (400 << 20) + 76235670);  // no step was large enough
  measure("2.15.1", cluster::kReserveKey, 100 << 20);
  EXPECT_EQ(beside_a_gibibyte(0), (400 << 20) + (100 << 20));
  EXPECT_EQ(beside_a_gibibyte(1), (512 << 20) + 76235670);
  EXPECT_EQ(beside_a_gibibyte(2), 0);
}

TEST_F(LearnFrameworkTest, TheMostOfSeveralRoundsCountsAndTf32DoesNotMatter) {
  measure("2.15.0+tf32", cluster::kContextKey, 400 << 20);
  measure("2.15.0+tf32", cluster::kContextKey, 300 << 20);
  measure("2.15.0+tf32", cluster::kReserveKey, 0);
  EXPECT_EQ(beside_a_gibibyte(0), 400 << 20);
}

TEST_F(LearnFrameworkTest, OtherVersionsOfPyTorchDoNotCount) {
  measure("2.14.0", cluster::kContextKey, 400 << 20);
  EXPECT_FALSE(learn_framework(*store_, "2.15.0", inputs_).has_value() &&
               inputs_.cluster.devices[0].framework.has_value());
}

}  // namespace
}  // namespace motley::control
