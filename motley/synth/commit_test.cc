#include "motley/synth/commit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "motley/program/commit.h"
#include "motley/program/effects.h"
#include "motley/program/parts.h"
#include "motley/program/program_text.h"
#include "motley/program/strands.h"
#include "motley/synth/lower.h"
#include "motley/testing/golden.h"

namespace motley::synth {
namespace {

cluster::Cluster three_devices() {
  cluster::Cluster cluster;
  cluster.name = "lab";
  cluster.nodes.push_back({"a"});
  for (int i = 0; i < 3; ++i) {
    cluster::Device device;
    device.node = NodeId(0);
    device.name = "a:" + std::to_string(i);
    device.kind = "cpu";
    device.index = i;
    cluster.devices.push_back(device);
  }
  return cluster;
}

plan::Plan split_plan(plan::OptimizerKind optimizer) {
  plan::Plan plan;
  plan.model_hash = "model";
  plan.replicas = plan::make_replicas({DeviceId(0), DeviceId(1), DeviceId(2)}, {4, 3, 1});
  plan.global_batch = 8;
  plan.recipe.optimizer.kind = optimizer;
  plan.recipe.clip_norm = 1.0;
  plan.bucket_bytes = Bytes(4 << 10);  // many buckets: some are exchanged while others are filled
  return plan;
}

/// What the commit promises, said once more from the program: all exchanges and all that they need
/// have surely finished when its sum begins, and nothing that is kept is written before it but what
/// find_commit names.
void expect_all_or_nothing(const program::DeviceProgram& device) {
  const auto commit = program::find_commit(device);
  ASSERT_TRUE(commit) << device.device;
  const program::Order order(device);
  const std::vector<BufferId> storages = program::storages_of(device);
  for (std::size_t i = 0; i < device.instructions.size(); ++i) {
    const program::Instruction& each = device.instructions[i];
    if (i != commit->at && program::is_exchange(each)) {
      EXPECT_LT(i, commit->at) << device.device;
      EXPECT_TRUE(order.has_finished(InstructionId(static_cast<std::int64_t>(i)), commit->at));
    }
    program::for_each_access(each, [&](BufferId id, program::Access access) {
      const BufferId root = storages[id.index()];
      if (access == program::Access::kRead || !program::is_persistent(device.buffer(root).kind))
        return;
      const bool is_named = std::count(commit->written.begin(), commit->written.end(), root) > 0;
      if (i < commit->at) {
        EXPECT_TRUE(is_named) << device.device << " ^" << i;
      } else if (!is_named) {
        EXPECT_TRUE(order.has_finished(InstructionId(static_cast<std::int64_t>(commit->at)), i));
      }
    });
  }
}

class Commits : public ::testing::TestWithParam<std::tuple<const char*, plan::OptimizerKind>> {};

TEST_P(Commits, NothingIsWrittenBeforeAllExchangesAreOver) {
  const auto& [model, optimizer] = GetParam();
  const plan::Plan plan = split_plan(optimizer);
  const auto lowered = lower(read_graph(model), plan, three_devices());
  ASSERT_TRUE(lowered) << lowered.error().message;
  const auto made = with_commit(*lowered);
  ASSERT_TRUE(made) << made.error().message;
  for (std::size_t rank = 0; rank < made->devices.size(); ++rank) {
    expect_all_or_nothing(made->devices[rank]);
    EXPECT_EQ(made->devices[rank].instructions.size(),
              lowered->devices[rank].instructions.size() + 2);
  }
  EXPECT_EQ(program::parse_program(program::print_program(*made), "again").value(), *made);
  // A second commit would be one sum too many.
  EXPECT_EQ(with_commit(*made).value(), *made);
}

INSTANTIATE_TEST_SUITE_P(Models, Commits,
                         ::testing::Combine(::testing::Values("mlp", "cnn", "gpt"),
                                            ::testing::Values(plan::OptimizerKind::kSgd,
                                                              plan::OptimizerKind::kAdamW,
                                                              plan::OptimizerKind::kMuon)));

TEST(Commit, OneRankNeedsNone) {
  plan::Plan plan = split_plan(plan::OptimizerKind::kSgd);
  plan.replicas = plan::make_replicas({DeviceId(0)}, {8});
  const auto lowered = lower(read_graph("mlp"), plan, three_devices());
  ASSERT_TRUE(lowered) << lowered.error().message;
  EXPECT_EQ(with_commit(*lowered).value(), *lowered);
}

}  // namespace
}  // namespace motley::synth
