#include "motley/synth/lower.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "motley/program/program_text.h"
#include "motley/testing/golden.h"

namespace motley::synth {
namespace {

const std::vector<std::string> kModels = {"mlp", "cnn", "gpt"};

struct Setting {
  std::vector<std::int64_t> samples;
  plan::BatchNormMode batch_norm = plan::BatchNormMode::kGlobal;
  Bytes bucket_bytes{4 << 20};
  plan::Updates updates = plan::Updates::kNative;
  std::optional<double> clip_norm = std::nullopt;
};

Result<program::Program> lower_for(const graph::Graph& graph, const Setting& setting) {
  cluster::Cluster cluster;
  cluster.name = "lab";
  cluster.nodes.push_back({"a"});
  std::vector<DeviceId> devices;
  for (std::size_t i = 0; i < setting.samples.size(); ++i) {
    cluster::Device device;
    device.node = NodeId(0);
    device.name = fmt::format("a:{}", i);
    device.kind = "cpu";
    device.index = static_cast<int>(i);
    cluster.devices.push_back(device);
    devices.push_back(DeviceId(static_cast<std::int64_t>(i)));
  }
  plan::Plan plan;
  plan.model_hash = "model";
  plan.replicas = plan::make_replicas(devices, setting.samples);
  plan.global_batch = std::accumulate(setting.samples.begin(), setting.samples.end(), 0LL);
  plan.recipe.optimizer.kind = plan::OptimizerKind::kAdamW;
  plan.batch_norm = setting.batch_norm;
  plan.bucket_bytes = setting.bucket_bytes;
  plan.updates = setting.updates;
  plan.recipe.clip_norm = setting.clip_norm;
  return lower(graph, plan, cluster);
}

std::string program_text(const std::string& model, const Setting& setting) {
  const auto program = lower_for(read_graph(model), setting);
  EXPECT_TRUE(program) << program.error().message;
  return program::print_program(*program);
}

TEST(Lower, GoldenPrograms) {
  for (const std::string& model : kModels) {
    expect_golden(model + ".alone", program_text(model, {{4}}));
    const Bytes bucket_bytes(model == "gpt" ? 16384 : 1 << 20);
    expect_golden(model + ".two", program_text(model, {{3, 1}, {}, bucket_bytes}));
  }
  expect_golden("cnn.local", program_text("cnn", {{3, 1}, plan::BatchNormMode::kLocal}));
}

/// Rank 0 has the larger share, so it provides the running statistics and the square sums that
/// clipping needs; rank 1 adds zeros. Each rank updates the parameters.
TEST(Lower, PortableUpdatesHaveOneDevicesNumbers) {
  Setting setting{{3, 1}};
  setting.updates = plan::Updates::kPortable;
  setting.clip_norm = 1.0;
  const auto program = lower_for(read_graph("cnn"), setting);
  ASSERT_TRUE(program);
  const auto count = [&](std::size_t rank, const std::string& name) {
    const auto& all = program->devices[rank].instructions;
    return std::count_if(all.begin(), all.end(),
                         [&](const auto& each) { return each.full_name() == name; });
  };
  for (const std::size_t rank : {0, 1}) {
    EXPECT_GT(count(rank, "motley::update.portable"), 0);
    EXPECT_EQ(count(rank, "motley::update"), 0);
    EXPECT_EQ(count(rank, "motley::square_sums"), 1);
  }
  std::size_t statistics = 0;
  for (const program::Buffer& buffer : program->devices[0].buffers)
    statistics += buffer.name.find("running_") != std::string::npos ? 1 : 0;
  EXPECT_GT(statistics, 0);
  EXPECT_EQ(count(0, "aten::zeros_like"), 0);
  EXPECT_EQ(count(1, "aten::zeros_like"), 1 + 2 * statistics);
  // A device alone has no other to differ from.
  setting.samples = {4};
  const auto alone = lower_for(read_graph("cnn"), setting);
  EXPECT_EQ(program::print_program(*alone).find("portable"), std::string::npos);
}

TEST(Lower, AloneNothingIsExchanged) {
  for (const std::string& model : kModels) {
    const auto program = lower_for(read_graph(model), {{4}});
    ASSERT_TRUE(program);
    EXPECT_TRUE(program->groups.empty());
    for (const program::Instruction& instruction : program->devices[0].instructions) {
      EXPECT_EQ(instruction.lane, Lane::kCompute);
      EXPECT_NE(instruction.op, "motley::pack");
      EXPECT_NE(instruction.op, "motley::batch_norm_sums");
    }
  }
}

/// Builds %0 f32[batch, 4] times parameter %1 f32[4] = %2, then `ops`; the last gives the loss.
graph::Graph graph_with(const std::string& ops, int loss) {
  auto graph = graph::parse_graph(R"(motley.graph/1
name "g"
size batch 1 4096
input %0: f32[batch, 4] "x"
param %1: f32[4] "w"
op %2: f32[batch, 4] = aten::mul.Tensor(%0, %1) fwd ""
)" + ops + fmt::format("output loss %{}\n", loss),
                                  "g");
  EXPECT_TRUE(graph) << graph.error().message;
  return *std::move(graph);
}

TEST(Lower, OperatorsThatMixSamplesRunWholeOnGatheredOperands) {
  for (const char* op : {"aten::sort(%2, 0, false)", "aten::unheard_of(%2)"}) {
    const graph::Graph graph =
        graph_with(fmt::format("op %3: f32[batch, 4], %4: i64[batch, 4] = {} fwd \"rank\"\n"
                               "op %5: f32[] = aten::sum(%3, none) fwd \"\"\n",
                               op),
                   5);
    const auto program = lower_for(graph, {{3, 1}});
    ASSERT_TRUE(program) << program.error().message;
    const program::DeviceProgram& device = program->devices[1];
    std::vector<std::string> transfers;
    for (const program::Instruction& each : device.instructions) {
      if (each.lane == Lane::kTransfer) transfers.push_back(each.op);
      // The device that has one sample gathers all four.
      if (each.label == "rank" && each.origin == OpId(1)) {
        EXPECT_EQ(device.buffer(each.outputs[0]).shape, (std::vector<std::int64_t>{4, 4}));
      }
    }
    // The operator's operand, then the stop request; the loss is whole everywhere.
    EXPECT_EQ(transfers, (std::vector<std::string>{"motley::all_gather", "motley::all_reduce"}));
    EXPECT_TRUE(lower_for(graph, {{4}}));
  }
}

std::string refusal(const graph::Graph& graph, const Setting& setting) {
  const auto program = lower_for(graph, setting);
  if (program) return "";
  EXPECT_EQ(program.error().code, "synth.unsupported");
  return program.error().message;
}

TEST(Lower, OwnStatisticsAreReadByTheirBackwardPassOnly) {
  const graph::Graph graph = graph_with(
      "op %3: f32[batch, 4], %4: f32[4], %5: f32[4], %6: f32[4], %7: f32[4] = "
      "aten::_native_batch_norm_legit_functional(%2, %1, %1, %1, %1, true, 0.1, 1e-05) fwd \"n\"\n"
      "op %8: f32[4] = aten::neg(%4) fwd \"m\"\n"
      "op %9: f32[] = aten::sum(%8, none) fwd \"\"\n",
      9);
  EXPECT_EQ(
      refusal(graph, {{2, 2}, plan::BatchNormMode::kLocal}),
      "g: cannot split operator %8 = aten::neg in module 'm' over devices: it uses statistics "
      "of each device's own samples (local batch norm); train on one device, without the others "
      "(--exclude)");
  EXPECT_TRUE(lower_for(graph, {{2, 2}}));
  EXPECT_TRUE(lower_for(graph, {{4}, plan::BatchNormMode::kLocal}));
}

TEST(Lower, RowsAreIndexedByTheirOwnNumbers) {
  // x[[0, 1, ...], y]: one element of each row, on the device that has the row.
  const auto graph = graph::parse_graph(R"(motley.graph/1
name "rows"
size batch 1 4096
input %0: f32[batch, 4] "x"
input %1: i64[batch] "y"
param %2: f32[4] "w"
op %3: f32[batch, 4] = aten::mul.Tensor(%0, %2) fwd ""
op %4: i64[batch] = aten::arange(size(batch), none, none, none, none) fwd ""
op %5: f32[batch] = aten::index.Tensor(%3, [%4, %1]) fwd "pick"
op %6: f32[] = aten::sum(%5, none) fwd ""
output loss %6
)",
                                        "rows");
  ASSERT_TRUE(graph) << graph.error().message;
  const auto program = lower_for(*graph, {{5, 2}});
  ASSERT_TRUE(program) << program.error().message;
  const std::string text = program::print_program(*program);
  EXPECT_EQ(text.find("motley::all_gather"), std::string::npos) << text;
  // The second device's rows are 5 and 6 globally, 0 and 1 locally.
  EXPECT_NE(text.find("aten::arange.start(5, 7, "), std::string::npos) << text;
  EXPECT_NE(text.find("number(5), 1)"), std::string::npos) << text;
  const auto alone = lower_for(*graph, {{7}});
  ASSERT_TRUE(alone);
  EXPECT_EQ(program::print_program(*alone).find("aten::sub"), std::string::npos);
}

TEST(Lower, RowsAllIdenticalAreAnyRows) {
  // Rows of %3 are t*batch + s; those of %4 are all 1, in any order.
  const auto graph = graph::parse_graph(R"(motley.graph/1
name "ones"
size batch 1 4096
input %0: f32[batch, 3, 4] "x"
param %1: f32[4] "w"
op %2: f32[3, batch, 4] = aten::transpose.int(%0, 0, 1) fwd ""
op %3: f32[batch*3, 4] = aten::view(%2, [size(batch*3), 4]) fwd ""
op %4: f32[batch*3, 4] = aten::full([size(batch*3), 4], 1.0, none, none, none, none) fwd ""
op %5: f32[batch*3, 4] = aten::add.Tensor(%3, %4, 1) fwd ""
op %6: f32[] = aten::sum(%5, none) fwd ""
output loss %6
)",
                                        "ones");
  ASSERT_TRUE(graph) << graph.error().message;
  const auto program = lower_for(*graph, {{5, 2}});
  ASSERT_TRUE(program) << program.error().message;
  const std::string text = program::print_program(*program);
  EXPECT_EQ(text.find("motley::all_gather"), std::string::npos) << text;
  EXPECT_NE(text.find("aten::full([6, 4], "), std::string::npos) << text;
}

TEST(Lower, DropoutDrawsByGlobalElement) {
  // Row t*batch + s of a sequence-first tensor: 3 blocks of the batch, 4 elements inside a row.
  const auto graph = graph::parse_graph(R"(motley.graph/1
name "d"
size batch 1 4096
input %0: f32[batch, 3, 4] "x"
param %1: f32[4] "w"
op %2: f32[3, batch, 4] = aten::transpose.int(%0, 0, 1) fwd ""
op %3: f32[batch*3, 4] = aten::view(%2, [size(batch*3), 4]) fwd ""
op %4: f32[batch*3, 4], %5: bool[batch*3, 4] = motley::dropout(%3, 0.5, 0) fwd "drop"
op %6: f32[4], %7: bool[4] = motley::dropout(%1, 0.5, 1) fwd "drop"
op %8: f32[batch*3, 4] = aten::mul.Tensor(%4, %6) fwd ""
op %9: f32[] = aten::sum(%8, none) fwd ""
output loss %9
)",
                                        "d");
  ASSERT_TRUE(graph) << graph.error().message;
  const auto program = lower_for(*graph, {{5, 2}});
  ASSERT_TRUE(program) << program.error().message;
  const std::string text = program::print_program(*program);
  // Draw 0 on the second device: outer 3, inner 4, first sample 5 of 7.
  EXPECT_NE(text.find("motley::dropout(%3, 0.5, number(0), 3, 4, number(5), number(7), "),
            std::string::npos)
      << text;
  // The mask of a parameter is identical on all devices.
  EXPECT_NE(text.find("motley::dropout(%1, 0.5, number(1), 1, 4, number(0), number(1), "),
            std::string::npos)
      << text;
}

std::vector<std::string> sequence(const program::DeviceProgram& device) {
  std::vector<std::string> operators;
  for (const program::Instruction& instruction : device.instructions)
    operators.push_back(instruction.full_name());
  return operators;
}

RC_GTEST_PROP(LowerProperty, VerifiesWithOneSequenceForAllRanks, ()) {
  const std::string model = *rc::gen::elementOf(kModels);
  Setting setting;
  setting.samples = *rc::gen::nonEmpty(
      rc::gen::resize(6, rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange(1, 9))));
  setting.batch_norm = *rc::gen::element(plan::BatchNormMode::kGlobal, plan::BatchNormMode::kLocal);
  setting.bucket_bytes = Bytes(*rc::gen::inRange(1, 100000));
  const auto program = lower_for(read_graph(model), setting);
  RC_ASSERT(program.has_value());  // lower() verifies what it returns
  std::int64_t first = 0;
  for (std::size_t i = 0; i < program->devices.size(); ++i) {
    RC_ASSERT(program->devices[i].samples == setting.samples[i]);
    RC_ASSERT(program->devices[i].first_sample == first);
    RC_ASSERT(sequence(program->devices[i]) == sequence(program->devices[0]));
    first += setting.samples[i];
  }
}

}  // namespace
}  // namespace motley::synth
