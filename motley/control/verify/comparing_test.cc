#include "motley/control/verify/comparing.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <span>

#include "motley/testing/small_inputs.h"

namespace motley::control {
namespace {

template <typename T>
NamedTensor tensor(const std::string& name, DType dtype, const std::vector<T>& values) {
  return {name,
          {dtype, {static_cast<std::int64_t>(values.size())}, std::as_bytes(std::span(values))}};
}

class ComparingTest : public ::testing::Test {
 protected:
  Result<Difference> compare(const std::vector<NamedTensor>& ours,
                             const std::vector<NamedTensor>& theirs) const {
    for (const RunDirectory* each : {&ours_, &theirs_})
      std::filesystem::create_directories(each->path);
    EXPECT_TRUE(write_safetensors(ours_.model(), ours, {}));
    EXPECT_TRUE(write_safetensors(theirs_.model(), theirs, {}));
    return compare_trained({measured_.losses, ours_.model()}, {reference_.losses, theirs_.model()});
  }

  TemporaryDirectory temporary_;
  RunDirectory ours_{temporary_.file("ours")}, theirs_{temporary_.file("theirs")};
  Measured measured_, reference_;
};

TEST_F(ComparingTest, TensorsAreComparedByTheirNorms) {
  const std::vector<float> a = {3, 4}, b = {3, 4.5}, c = {1};
  const auto difference = compare({tensor("w", DType::kF32, b), tensor("v", DType::kF32, c)},
                                  {tensor("w", DType::kF32, a), tensor("v", DType::kF32, c)});
  ASSERT_TRUE(difference);
  EXPECT_DOUBLE_EQ(difference->tensors.at("w"), 0.1);  // .5 / |(3, 4)|
  EXPECT_EQ(difference->tensors.at("v"), 0);
}

TEST_F(ComparingTest, LossesAreComparedStepByStep) {
  measured_.losses = {2.0, 1.1};
  reference_.losses = {2.0, 1.0};
  const auto difference = compare({}, {});
  EXPECT_NEAR(difference->loss, 0.1, 1e-12);
  EXPECT_TRUE(difference->has_all_steps);
  reference_.losses.push_back(1);
  EXPECT_FALSE(compare({}, {})->has_all_steps);
}

TEST_F(ComparingTest, IntegersDifferWhollyOrNotAtAll) {
  const std::vector<std::int64_t> a = {1'000'000, 7}, b = {1'000'001, 7};
  const NamedTensor same = tensor("n", DType::kI64, a), other = tensor("n", DType::kI64, b);
  EXPECT_EQ(compare({same}, {same})->tensors.at("n"), 0);
  EXPECT_EQ(compare({other}, {same})->tensors.at("n"), 1);
}

TEST_F(ComparingTest, Bfloat16IsWidened) {
  const std::vector<std::uint16_t> one = {0x3F80}, two = {0x4000};  // upper halves of floats
  const auto difference =
      compare({tensor("h", DType::kBF16, two)}, {tensor("h", DType::kBF16, one)});
  EXPECT_EQ(difference->tensors.at("h"), 1);
}

TEST_F(ComparingTest, AMissingTensorIsNamed) {
  const std::vector<float> a = {1};
  const auto difference = compare({}, {tensor("w", DType::kF32, a)});
  ASSERT_FALSE(difference);
  EXPECT_EQ(difference.error().message,
            theirs_.model() + ": tensor 'w' differs in shape or is missing from " + ours_.model());
}

TEST_F(ComparingTest, TheReferenceIsTheWholeBatchOnOneCore) {
  const Inputs inputs = small_inputs(kEmulated, 14);
  plan::Plan plan{.model_hash = inputs.model->hash,
                  .cluster_hash = cluster::cluster_hash(inputs.cluster),
                  .global_batch = 14,
                  .replicas = plan::make_replicas(inputs.devices, {8, 4, 2})};
  plan.recipe.optimizer.lr = 0.125;
  plan.owners = {{{"*"}, {{inputs.devices[1], 1.0}, {inputs.devices[2], 2.0}}}};
  const Reference reference = make_reference(inputs, plan).value();
  ASSERT_EQ(reference.planned.program->devices.size(), 1U);
  EXPECT_EQ(reference.planned.program->devices[0].samples, 14);
  EXPECT_EQ(reference.inputs.cluster.devices[0].speed, 1);
  EXPECT_EQ(reference.planned.plan.recipe.optimizer, plan.recipe.optimizer);
  EXPECT_TRUE(
      plan::verify_plan(reference.planned.plan, inputs.model->hash, reference.inputs.cluster));
}

}  // namespace
}  // namespace motley::control
