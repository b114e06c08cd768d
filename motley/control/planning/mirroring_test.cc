#include "motley/control/planning/mirroring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "motley/graph/layer_chain.h"
#include "motley/program/memory.h"
#include "motley/testing/small_inputs.h"

namespace motley::control {
namespace {

using ::testing::HasSubstr;

/// The MLP's layers on three devices in sequence, with Adam.
plan::Plan in_stages(const Inputs& inputs) {
  const graph::LayerChain chain = graph::find_layer_chain(inputs.graph());
  std::size_t layers = 1;
  for (const std::size_t layer : chain.of_op) layers = std::max(layers, layer + 1);
  plan::Plan plan;
  plan.model_hash = inputs.model->hash;
  plan.global_batch = 9;
  plan.recipe.optimizer.kind = plan::OptimizerKind::kAdam;
  plan.replicas = {{9, {}, 1}};
  for (std::size_t stage = 0; stage < 3; ++stage) {
    plan::Region& region = plan.replicas[0].regions.emplace_back();
    region.devices = {DeviceId(static_cast<std::int64_t>(stage))};
    region.shares = {1.0};
    for (std::size_t i = 0; i < chain.of_op.size(); ++i)
      if (chain.of_op[i] * 3 / layers == stage)
        plan::append(region.covers, static_cast<std::int64_t>(i));
  }
  std::erase_if(plan.replicas[0].regions,
                [](const plan::Region& region) { return region.covers.empty(); });
  return plan;
}

TEST(Mirroring, IsForRunsThatAreToOutliveLosses) {
  Inputs inputs = small_inputs(kEmulated, 9);
  inputs.commits = true;
  const plan::Plan plan = in_stages(inputs);
  const auto bare = lower_plan(inputs, plan);
  ASSERT_TRUE(bare) << bare.error().message;
  EXPECT_THAT(describe_losses(*bare->program), HasSubstr("goes on from the last checkpoint"));
  EXPECT_FALSE(*outlives_losses(inputs, *bare, 1));
  inputs.survive = 1;
  const auto made = lower_plan(inputs, plan);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_TRUE(*outlives_losses(inputs, *made, 1));
  EXPECT_TRUE(*outlives_losses(inputs, {plan, nullptr}, 1));
  EXPECT_FALSE(*outlives_losses(inputs, *made, 2));
  EXPECT_THAT(describe_losses(*made->program), HasSubstr("any 1 of "));
}

TEST(Mirroring, KeepsWhatThereIsRoomFor) {
  Inputs inputs = small_inputs(kEmulated, 9);
  inputs.commits = true;
  inputs.survive = 1;
  const plan::Plan plan = in_stages(inputs);
  const Planned whole = lower_plan(inputs, plan).value();
  for (std::size_t rank = 0; rank < whole.program->devices.size(); ++rank)
    inputs.cluster.devices[rank].memory =
        program::find_memory_peak(whole.program->devices[rank]).total;
  EXPECT_EQ(*lower_plan(inputs, plan)->program, *whole.program);
  // 64 bytes less than needed, but enough without mirrors.
  inputs.survive = 0;
  const Planned bare = lower_plan(inputs, plan).value();
  inputs.survive = 1;
  for (std::size_t rank = 0; rank < whole.program->devices.size(); ++rank)
    inputs.cluster.devices[rank].memory =
        std::max(*inputs.cluster.devices[rank].memory - Bytes(64),
                 program::find_memory_peak(bare.program->devices[rank]).total);
  const Planned less = lower_plan(inputs, plan).value();
  EXPECT_TRUE(check_memory(inputs, less));
  EXPECT_FALSE(*outlives_losses(inputs, less, 1));
}

}  // namespace
}  // namespace motley::control
