#include "motley/synth/state/commit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "motley/graph/layer_chain.h"
#include "motley/program/commit.h"
#include "motley/program/effects.h"
#include "motley/program/parts.h"
#include "motley/program/program_text.h"
#include "motley/program/strands.h"
#include "motley/synth/lower.h"
#include "motley/testing/golden.h"
#include "motley/testing/uneven_split.h"

namespace motley::synth {
namespace {

plan::Plan split_plan(plan::OptimizerKind optimizer) {
  plan::Plan plan = uneven_split(optimizer);
  plan.recipe.clip_norm = 1.0;
  return plan;
}

/// Checks the commit's promise against the program: all exchanges and everything they need have
/// finished when its sum begins, and before it only the state that find_commit names is written.
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
  const auto lowered = lower(read_graph(model), plan, lab_of_three());
  ASSERT_TRUE(lowered) << lowered.error().message;
  const auto made = with_commit(*lowered);
  ASSERT_TRUE(made) << made.error().message;
  for (std::size_t rank = 0; rank < made->devices.size(); ++rank) {
    expect_all_or_nothing(made->devices[rank]);
    EXPECT_EQ(made->devices[rank].instructions.size(),
              lowered->devices[rank].instructions.size() + 2);
  }
  EXPECT_EQ(program::parse_program(program::print_program(*made), "again").value(), *made);
  // A second commit would add a second sum.
  EXPECT_EQ(with_commit(*made).value(), *made);
}

INSTANTIATE_TEST_SUITE_P(Models, Commits,
                         ::testing::Combine(::testing::Values("mlp", "cnn", "gpt"),
                                            ::testing::Values(plan::OptimizerKind::kSgd,
                                                              plan::OptimizerKind::kAdamW,
                                                              plan::OptimizerKind::kMuon)));

/// Checks a commit of a program of several ranks.
void expect_commits(const program::Program& lowered) {
  const auto made = with_commit(lowered);
  ASSERT_TRUE(made) << made.error().message;
  for (const program::DeviceProgram& device : made->devices) expect_all_or_nothing(device);
  EXPECT_EQ(program::parse_program(program::print_program(*made), "again").value(), *made);
  EXPECT_EQ(with_commit(*made).value(), *made);
}

cluster::Cluster more_devices(std::size_t count) {
  cluster::Cluster cluster = lab_of_three();
  while (cluster.devices.size() < count) {
    cluster::Device device = cluster.devices.back();
    device.name = "a:" + std::to_string(++device.index);
    cluster.devices.push_back(device);
  }
  return cluster;
}

/// Returns a region of a part of the layers, as fractions of all, on one device.
plan::Region part_of(const graph::Graph& graph, std::int64_t device, double from, double to) {
  const graph::LayerChain chain = graph::find_layer_chain(graph);
  std::size_t layers = 0;
  for (const std::size_t layer : chain.of_op) layers = std::max(layers, layer + 1);
  const auto at = [&](double share) {
    return static_cast<std::size_t>(share * static_cast<double>(layers));
  };
  plan::Region region{{DeviceId(device)}, {1.0}};
  for (std::size_t i = 0; i < chain.of_op.size(); ++i)
    if (chain.of_op[i] >= at(from) && chain.of_op[i] < at(to))
      plan::append(region.covers, static_cast<std::int64_t>(i));
  return region;
}

class StageCommits : public ::testing::TestWithParam<const char*> {};

TEST_P(StageCommits, MessagesOfAPipelineAreOverToo) {
  const graph::Graph graph = read_graph(GetParam());
  for (const int micro_batches : {1, 3}) {
    plan::Plan plan = split_plan(plan::OptimizerKind::kAdamW);
    plan.replicas = {{8, {part_of(graph, 0, 0, 0.5), part_of(graph, 1, 0.5, 1)}, micro_batches}};
    const auto lowered = lower(graph, plan, more_devices(2));
    ASSERT_TRUE(lowered) << lowered.error().message;
    expect_commits(*lowered);
  }
}

// Gradients are summed by sets of holders, in buckets, and some devices own rows of states: the
// owner of a parameter's rows sends their new values to the others, before the commit.
TEST_P(StageCommits, WhatIsUpdatedBeforeAnExchangeIsNamed) {
  const graph::Graph graph = read_graph(GetParam());
  plan::Plan plan = split_plan(plan::OptimizerKind::kAdamW);
  plan.recipe.clip_norm.reset();  // otherwise its norm is exchanged, too
  plan.replicas = {{5, {part_of(graph, 0, 0, 0.7), part_of(graph, 1, 0.7, 1)}, 2},
                   {3, {part_of(graph, 2, 0, 0.4), part_of(graph, 3, 0.4, 1)}, 1}};
  for (const bool shares_states : {false, true}) {
    plan.owners.clear();
    if (shares_states) plan.owners.push_back({{"*"}, {}});
    for (std::int64_t device = 0; shares_states && device < 4; ++device)
      plan.owners[0].shares[DeviceId(device)] = 1.0 + static_cast<double>(device);
    const auto lowered = lower(graph, plan, more_devices(4));
    ASSERT_TRUE(lowered) << lowered.error().message;
    expect_commits(*lowered);
    const auto made = with_commit(*lowered).value();
    std::size_t named = 0;
    for (const program::DeviceProgram& device : made.devices)
      if (const auto commit = program::find_commit(device)) named += commit->written.size();
    EXPECT_TRUE(named > 0 || !shares_states);
  }
}

TEST_P(StageCommits, ParametersThatAreKeptInPartsAreAllOrNothing) {
  for (const Bytes bucket : {Bytes(4 << 10), Bytes(4 << 20)})
    expect_commits(lower_spread(read_graph(GetParam()), {3, 1, 2}, Kept::kInParts, bucket));
}

INSTANTIATE_TEST_SUITE_P(Models, StageCommits, ::testing::Values("mlp", "gpt"));

TEST(Commit, OneRankNeedsNone) {
  plan::Plan plan = split_plan(plan::OptimizerKind::kSgd);
  plan.replicas = plan::make_replicas({DeviceId(0)}, {8});
  const auto lowered = lower(read_graph("mlp"), plan, lab_of_three());
  ASSERT_TRUE(lowered) << lowered.error().message;
  EXPECT_EQ(with_commit(*lowered).value(), *lowered);
}

}  // namespace
}  // namespace motley::synth
