#include "motley/synth/stages/lower_stages.h"

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

/// Do all exchanges come about? Each rank makes its own one after the other, each with all of the
/// group.
bool all_exchanges_end(const program::Program& program) {
  std::vector<std::vector<GroupId>> lanes;
  for (const program::DeviceProgram& device : program.devices) {
    lanes.emplace_back();
    for (const program::Instruction& each : device.instructions)
      if (each.lane == Lane::kTransfer) lanes.back().push_back(each.group);
  }
  std::vector<std::size_t> next(lanes.size(), 0);
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (std::size_t g = 0; g < program.groups.size(); ++g) {
      const GroupId group(static_cast<std::int64_t>(g));
      const auto& members = program.groups[g].members;
      if (!std::all_of(members.begin(), members.end(), [&](Rank rank) {
            const std::size_t r = rank.index();
            return next[r] < lanes[r].size() && lanes[r][next[r]] == group;
          }))
        continue;
      for (const Rank rank : members) ++next[rank.index()];
      goes_on = true;
    }
  }
  for (std::size_t r = 0; r < lanes.size(); ++r)
    if (next[r] < lanes[r].size()) return false;
  return true;
}

/// Where the first one of an operator is among a rank's instructions, and the last.
struct Placed {
  std::int64_t first = -1, last = -1;
};
Placed find(const program::Program& program, std::size_t rank, const std::string& begin) {
  Placed found;
  const auto& instructions = program.devices[rank].instructions;
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    if (!instructions[i].op.starts_with(begin) ||
        (begin == "aten::" && instructions[i].origin.is_none()))
      continue;
    found.last = static_cast<std::int64_t>(i);
    if (found.first < 0) found.first = found.last;
  }
  return found;
}

// Two layers with weights are in the first stage. The gradients of the second one are there before
// the first one's backward pass: they are packed in front of it and, where both replicas have
// them, on their way. Parameters are updated behind all passes.
TEST(LowerStages, GradientsAreExchangedWhilePassesGoOn) {
  const graph::Graph graph = read_graph("mlp");
  plan::Plan plan = blank(8);
  plan.bucket_bytes = Bytes(64);
  plan.replicas = {{4, {stage(graph, DeviceId(0), 0, 3), stage(graph, DeviceId(1), 3, 6)}, 2},
                   {4, {stage(graph, DeviceId(2), 0, 3), stage(graph, DeviceId(3), 3, 6)}, 2}};
  const auto program = lower(graph, plan, devices(4));
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_TRUE(all_exchanges_end(*program));
  for (std::size_t rank = 0; rank < 4; ++rank) {
    const Placed operators = find(*program, rank, "aten::");
    EXPECT_LT(find(*program, rank, "motley::pack").first, operators.last) << rank;
    EXPECT_GT(find(*program, rank, "motley::update").first, operators.last) << rank;
  }
  // The second replica's passes come second in the order of the step: behind its gradients.
  EXPECT_LT(find(*program, 2, "motley::all_reduce").first, find(*program, 2, "aten::").last);
}

// Whatever the buckets and whoever is ready first.
TEST(LowerStages, SumsOfGradientsHaveOneOrder) {
  const graph::Graph graph = read_graph("gpt");
  const std::size_t layers = graph::find_layer_chain(graph).names.size();
  for (const std::int64_t bytes : {1, 4096, 1 << 20})
    for (std::size_t cut = 1; cut < layers; ++cut) {
      plan::Plan plan = blank(9);
      plan.bucket_bytes = Bytes(bytes);
      plan.replicas = {
          {5, {stage(graph, DeviceId(0), 0, cut), stage(graph, DeviceId(1), cut, layers)}, 2},
          {3, {stage(graph, DeviceId(2), 0, 1), stage(graph, DeviceId(3), 1, layers)}, 3},
          {1, {{{DeviceId(4)}, {1.0}}}, 1}};
      const auto program = lower(graph, plan, devices(5));
      ASSERT_TRUE(program) << program.error().message;
      EXPECT_TRUE(all_exchanges_end(*program)) << bytes << " " << cut;
    }
}

// The head reads a view of the embedding's weight that the embedding's stage makes: it is given
// that once a step and gives a term of the gradient back, of all micro-batches at once. So the
// weight is the first stage's alone, and nothing is summed behind the passes but the loss.
TEST(LowerStages, AStageGivesATermOfTheGradientOfWhatItDoesNotHave) {
  const graph::Graph graph = read_graph("gpt");
  const std::size_t layers = graph::find_layer_chain(graph).names.size();
  std::int64_t view = -1;
  for (std::size_t i = 0; i < graph.ops.size(); ++i)
    if (graph.ops[i].name == "aten::t" && graph.ops[i].module == "head" && view < 0)
      view = static_cast<std::int64_t>(i);
  plan::Plan plan = blank(6);
  plan.replicas = {{6, {stage(graph, DeviceId(0), 0, 2), stage(graph, DeviceId(1), 2, layers)}, 3}};
  const auto both = lower(graph, plan, devices(2));
  ASSERT_TRUE(both) << both.error().message;
  EXPECT_EQ(count(*both, 0, "motley::all_reduce"), 2);
  for (plan::Region& region : plan.replicas[0].regions) {
    const bool is_first = region.devices[0] == DeviceId(0);
    std::vector<plan::OpRange> covers;
    for (std::int64_t op = 0; op < static_cast<std::int64_t>(graph.ops.size()); ++op) {
      const bool has = std::any_of(
          region.covers.begin(), region.covers.end(),
          [&](const plan::OpRange& range) { return range.first <= op && op < range.end; });
      if (op == view ? is_first : has) plan::append(covers, op);
    }
    region.covers = covers;
  }
  const auto program = lower(graph, plan, devices(2));
  ASSERT_TRUE(program) << program.error().message;
  for (const std::size_t rank : {0, 1}) {
    EXPECT_EQ(count(*program, rank, "motley::all_reduce"), 1);
    EXPECT_EQ(count(*program, rank, "motley::send"), count(*both, rank, "motley::send") + 1);
    bool has_weight = false;
    for (const program::Buffer& buffer : program->devices[rank].buffers)
      has_weight = has_weight || buffer.name == "wte.weight";
    EXPECT_EQ(has_weight, rank == 0);
  }
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
