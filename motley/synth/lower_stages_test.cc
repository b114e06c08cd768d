#include "motley/synth/lower_stages.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "motley/graph/layer_chain.h"
#include "motley/program/program_text.h"
#include "motley/synth/lower.h"
#include "motley/testing/golden.h"

namespace motley::synth {
namespace {

cluster::Cluster devices(int count) {
  cluster::Cluster cluster;
  cluster.name = "lab";
  cluster.nodes.push_back({"a"});
  for (int i = 0; i < count; ++i) {
    cluster::Device device;
    device.node = NodeId(0);
    device.name = fmt::format("a:{}", i);
    device.kind = "cpu";
    device.index = i;
    cluster.devices.push_back(device);
  }
  return cluster;
}

/// The operators of layers [first, end).
plan::Region stage(const graph::Graph& graph, DeviceId device, std::size_t first, std::size_t end) {
  const graph::LayerChain chain = graph::find_layer_chain(graph);
  plan::Region region{{device}, {1.0}};
  for (std::size_t i = 0; i < chain.of_op.size(); ++i)
    if (chain.of_op[i] >= first && chain.of_op[i] < end)
      plan::append(region.covers, static_cast<std::int64_t>(i));
  return region;
}

plan::Plan blank(std::int64_t batch) {
  plan::Plan plan;
  plan.model_hash = "model";
  plan.global_batch = batch;
  return plan;
}

std::int64_t count(const program::Program& program, std::size_t rank, const std::string& op) {
  const auto& instructions = program.devices[rank].instructions;
  return std::count_if(instructions.begin(), instructions.end(),
                       [&](const program::Instruction& each) { return each.op == op; });
}

// Of each micro-batch an activation goes there and its gradient comes back; nothing else is
// exchanged but the loss, as each stage has parameters of its own.
TEST(LowerStages, APipelineSendsActivationsAndTheirGradients) {
  const graph::Graph graph = read_graph("mlp");
  plan::Plan plan = blank(7);
  plan.replicas = {{7, {stage(graph, DeviceId(0), 0, 3), stage(graph, DeviceId(1), 3, 6)}, 3}};
  const auto program = lower(graph, plan, devices(2));
  ASSERT_TRUE(program) << program.error().message;
  for (const std::size_t rank : {0, 1}) {
    EXPECT_EQ(count(*program, rank, "motley::send"), 3);
    EXPECT_EQ(count(*program, rank, "motley::receive"), 3);
    EXPECT_EQ(count(*program, rank, "motley::all_reduce"), 1);
    // What others have none of is a part, all of it, and saved here.
    for (const program::Buffer& buffer : program->devices[rank].buffers) {
      if (buffer.kind != program::BufferKind::kParameter) continue;
      ASSERT_TRUE(buffer.part);
      EXPECT_EQ(buffer.part->extent, buffer.elements());
      EXPECT_FALSE(buffer.part->is_copy);
    }
  }
}

// Two replicas cut differently: the parameters of the three layers are held by two devices each,
// in three sets: {a, c}, {b, c} and, of the layers between the two cuts, {a, d} or {b, d}.
TEST(LowerStages, ReplicasCutDifferentlySumByTheirHolders) {
  const graph::Graph graph = read_graph("mlp");
  plan::Plan plan = blank(8);
  plan.bucket_bytes = Bytes(1 << 20);
  plan.replicas = {{5, {stage(graph, DeviceId(0), 0, 4), stage(graph, DeviceId(1), 4, 6)}, 2},
                   {3, {stage(graph, DeviceId(2), 0, 2), stage(graph, DeviceId(3), 2, 6)}, 1}};
  const auto program = lower(graph, plan, devices(4));
  ASSERT_TRUE(program) << program.error().message;
  std::vector<std::vector<Rank>> groups;
  for (const program::Group& group : program->groups) groups.push_back(group.members);
  const auto ranks = [](std::vector<std::int64_t> numbers) {
    std::vector<Rank> made;
    for (const std::int64_t number : numbers) made.emplace_back(number);
    return made;
  };
  EXPECT_THAT(groups, ::testing::IsSupersetOf(
                          {ranks({0, 2}), ranks({0, 3}), ranks({1, 3}), ranks({0, 1, 2, 3})}));
  // The second replica's copies are not saved twice.
  for (const program::Buffer& buffer : program->devices[2].buffers)
    EXPECT_TRUE(buffer.kind != program::BufferKind::kParameter || buffer.part->is_copy);
}

TEST(LowerStages, RegionsMustHaveAllOperators) {
  const graph::Graph graph = read_graph("mlp");
  plan::Plan plan = blank(4);
  plan.replicas = {{4, {stage(graph, DeviceId(0), 0, 2), stage(graph, DeviceId(1), 3, 6)}, 1}};
  const auto program = lower(graph, plan, devices(2));
  ASSERT_FALSE(program);
  EXPECT_EQ(program.error().kind, ErrorKind::kStale);
  EXPECT_THAT(program.error().message, ::testing::HasSubstr("is in no region of replica 0"));
}

// Batch norm needs all samples at once: one micro-batch of one replica can be cut all the same.
TEST(LowerStages, BatchNormTakesOneMicroBatch) {
  const graph::Graph graph = read_graph("cnn");
  const std::size_t layers = graph::find_layer_chain(graph).names.size();
  plan::Plan plan = blank(4);
  plan.replicas = {
      {4,
       {stage(graph, DeviceId(0), 0, layers / 2), stage(graph, DeviceId(1), layers / 2, layers)},
       1}};
  EXPECT_TRUE(lower(graph, plan, devices(2)));
  plan.replicas[0].micro_batches = 2;
  const auto refused = lower(graph, plan, devices(2));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, "synth.accumulation");
}

}  // namespace
}  // namespace motley::synth
