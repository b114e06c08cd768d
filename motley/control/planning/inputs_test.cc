#include "motley/control/planning/inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/base/file.h"
#include "motley/testing/fake_outside.h"
#include "motley/testing/small_inputs.h"

namespace motley::control {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

class InputsTest : public ::testing::Test {
 protected:
  InputsTest() {
    EXPECT_TRUE(write_mlp(question_.model));
    EXPECT_TRUE(write_file_atomic(question_.cluster, kEmulated));
  }

  TemporaryDirectory directory_;
  Question question_{.model = directory_.file("mlp.motley"),
                     .cluster = directory_.file("three.toml"),
                     .global_batch = 14};
  RecordingListener listener_;
};

TEST_F(InputsTest, FilesBecomeModelAndDevices) {
  const Inputs inputs = read_inputs(question_, listener_).value();
  EXPECT_EQ(inputs.model_path, question_.model);
  EXPECT_EQ(inputs.graph().name, "mlp");
  EXPECT_TRUE(inputs.model->weights);
  EXPECT_THAT(inputs.devices, ElementsAre(DeviceId(0), DeviceId(1), DeviceId(2)));
  EXPECT_EQ(inputs.global_batch, 14);
}

TEST_F(InputsTest, LayersOfAProfileAreNotRun) {
  EXPECT_TRUE(write_file_atomic(question_.model, R"(motley.graph/1
name "layers"
size batch 1 8
input %0: f32[batch, 1] "samples"
param %1: f32[2, 3] "layers.0.split"
op %2: f32[batch, 1], %3: f32[batch, 2, 1], %4: f32[batch, 1] = motley::layer(%0, [%1], 0, 1.0) fwd "layers.0" seq 0
op %5: f32[] = aten::sum(%2, none) fwd "loss" seq 1
output loss %5
)"));
  EXPECT_EQ(read_inputs(question_, listener_).error().message,
            question_.model +
                ": is the graph of a layer profile, whose layers nobody can run; plan and simulate "
                "it with --layer-times, and to train export the model (python -m motley.export)");
}

TEST_F(InputsTest, WhatWasReadIsToldAsText) {
  ASSERT_TRUE(read_inputs(question_, listener_));
  ASSERT_THAT(listener_.phases, SizeIs(1));
  EXPECT_EQ(listener_.phases[0].first, Phase::kLoad);
  EXPECT_THAT(listener_.phases[0].second, StartsWith("motley.graph/1\n"));
  EXPECT_THAT(listener_.phases[0].second, HasSubstr("motley.cluster/1"));
}

TEST_F(InputsTest, ExcludedDevicesAreNotPlannedFor) {
  question_.exclude = {"a:1"};
  EXPECT_THAT(read_inputs(question_, listener_)->devices, ElementsAre(DeviceId(0), DeviceId(2)));
  question_.exclude = {"a:0", "a:1", "a:2"};
  EXPECT_EQ(read_inputs(question_, listener_).error().message, "--exclude leaves no device");
  question_.exclude = {"b:0"};
  const auto unknown = read_inputs(question_, listener_);
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, HasSubstr("b:0"));
}

TEST_F(InputsTest, AFaultNamesFileAndLine) {
  ASSERT_TRUE(write_file_atomic(question_.cluster, "schema = \"motley.cluster/1\"\nnodes = 3\n"));
  const auto inputs = read_inputs(question_, listener_);
  ASSERT_FALSE(inputs);
  EXPECT_THAT(inputs.error().message, StartsWith(question_.cluster + ":2: unknown key 'nodes'"));
  EXPECT_THAT(listener_.phases, IsEmpty());
}

TEST_F(InputsTest, UpdatesArePortableWhereDevicesAreNotIdentical) {
  EXPECT_EQ(read_inputs(question_, listener_)->lowering.updates, plan::Updates::kNative);
  const std::string text = read_file(question_.cluster).value();
  const std::size_t first = text.find("kind = \"cpu\"");
  ASSERT_NE(first, std::string::npos);
  ASSERT_TRUE(write_file_atomic(question_.cluster,
                                text.substr(0, first) + "model = \"EPYC\"\n" + text.substr(first)));
  EXPECT_EQ(read_inputs(question_, listener_)->lowering.updates, plan::Updates::kPortable);
  question_.updates = plan::Updates::kNative;
  EXPECT_EQ(read_inputs(question_, listener_)->lowering.updates, plan::Updates::kNative);
}

TEST_F(InputsTest, HowAModelIsLoweredIsPartOfItsName) {
  const Inputs inputs = read_inputs(question_, listener_).value();
  Inputs local = inputs;
  local.lowering.batch_norm = plan::BatchNormMode::kLocal;
  EXPECT_NE(profile_subject(inputs), profile_subject(local));
  Inputs larger = inputs;
  larger.global_batch = 28;
  EXPECT_EQ(profile_subject(inputs), profile_subject(larger));
}

}  // namespace
}  // namespace motley::control
