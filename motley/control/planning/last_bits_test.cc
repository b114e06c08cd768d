#include "motley/control/planning/last_bits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <span>
#include <vector>

#include "motley/testing/small_inputs.h"

namespace motley::control {
namespace {

TEST(LastBits, MovesEveryWeightToTheNextNumber) {
  const TemporaryDirectory directory;
  Inputs inputs = small_inputs(kEmulated, 14);
  inputs.model_path = directory.file("mlp.motley");
  ASSERT_TRUE(write_mlp(inputs.model_path));
  std::vector<float> values(32 * 12, -1.5F);
  values[1] = 0;
  {
    const Safetensors zeros = Safetensors::open(inputs.model_path).value();
    std::vector<NamedTensor> tensors;
    for (const auto& [name, tensor] : zeros.tensors()) {
      tensors.push_back({name, tensor});
      tensors.back().tensor.bytes = std::as_bytes(std::span(values)).first(tensor.bytes.size());
    }
    ASSERT_TRUE(write_safetensors(inputs.model_path, tensors, zeros.metadata()));
  }
  inputs.model = std::make_shared<const graph::Model>(graph::read_model(inputs.model_path).value());
  const auto changed = change_last_bits(inputs, directory.file("changed.motley"), 1);
  ASSERT_TRUE(changed) << changed.error().message;
  EXPECT_EQ(changed->model_path, directory.file("changed.motley"));
  std::map<float, int> found;
  for (const auto& [name, tensor] : changed->model->weights->tensors()) {
    for (std::size_t at = 0; at < tensor.bytes.size(); at += sizeof(float)) {
      float value = 0;
      std::memcpy(&value, tensor.bytes.data() + at, sizeof(float));
      ++found[value];
    }
  }
  ASSERT_EQ(found.size(), 3u);
  EXPECT_GT(found[std::nextafter(-1.5F, 0.0F)], 100);
  EXPECT_GT(found[std::nextafter(-1.5F, -2.0F)], 100);
  EXPECT_GT(found[0], 0);
}

}  // namespace
}  // namespace motley::control
