#include "motley/synth/state/mirrored.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "motley/graph/layer_chain.h"
#include "motley/program/commit.h"
#include "motley/program/program_text.h"
#include "motley/synth/lower.h"
#include "motley/synth/state/commit.h"
#include "motley/testing/golden.h"

namespace motley::synth {
namespace {

using program::BufferKind;
using program::Program;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Program mirrored(const Program& program, int survive,
                 plan::Updates updates = plan::Updates::kNative) {
  const auto mirrors = choose_mirrors(program, {.survive = survive, .hosts = {}});
  EXPECT_TRUE(mirrors) << mirrors.error().message;
  auto made = with_mirrors(program, *mirrors, updates);
  EXPECT_TRUE(made) << made.error().message;
  return made ? std::move(*made) : Program();
}

int survives(const Program& program) {
  const MirrorOptions options{
      .survive = 9, .hosts = {}, .room = std::vector<Bytes>(program.devices.size(), Bytes(0))};
  return choose_mirrors(program, options).value().survives_devices;
}

std::string text_of(const Program& program, const std::string& device) {
  const std::string text = program::print_program(program);
  const auto begin = text.find("device \"" + device);
  return text.substr(begin, text.find("device \"", begin + 1) - begin);
}

/// a:0 alone has one weight, a:1 alone another, each with a momentum.
Program two_alone() {
  const auto device = [](const char* name, const char* tensor) {
    const std::string quoted = std::string("\"") + tensor;
    return std::string("device \"") + name + "\" samples 4 first " +
           (tensor[0] == 'v' ? "0" : "4") + "\nbuffer %0: parameter f32[4] " + quoted +
           "\" part 1 0 4 1\nbuffer %1: state f32[4] " + quoted + "/momentum\" part 1 0 4 1\n" +
           "buffer %2: parameter f32[2] \"both\"\n"
           "buffer %3: temporary f32[4]\nbuffer %4: temporary f32[2]\n"
           "compute ^0: %3 = aten::mul.Tensor(%0, %0) \"backward\"\n"
           "compute ^1: %4 = aten::mul.Tensor(%2, %2) \"backward\"\n"
           "compute ^2: motley::update(\"sgd\", [%2, %0], [%4, %3], [%2, %1], [], none, none, "
           "none, "
           "0.1, 0.0, [0.9, 0.0]) \"bucket 0\" free %3 %4\n";
  };
  auto program =
      program::parse_program("motley.program/1\nmodel \"m\" plan \"p\" global_batch 8\n" +
                                 device("a:0", "v") + device("a:1", "w"),
                             "two");
  EXPECT_TRUE(program) << program.error().message;
  return std::move(*program);
}

// a:0 keeps w and w/momentum of a:1 and repeats their update with the gradient, which arrives when
// its own backward pass is done. State that both have is not sent.
TEST(Mirrored, KeepersDoTheHoldersUpdate) {
  const Program made = mirrored(two_alone(), 1);
  EXPECT_EQ(
      text_of(made, "a:0"),
      "device \"a:0\" samples 4 first 0\n"
      "buffer %0: parameter f32[4] \"v\" part 1 0 4 1\n"
      "buffer %1: state f32[4] \"v/momentum\" part 1 0 4 1\n"
      "buffer %2: parameter f32[2] \"both\"\n"
      "buffer %3: temporary f32[4]\n"
      "buffer %4: temporary f32[2]\n"
      "buffer %5: temporary f32[4]\n"
      "buffer %6: mirror f32[4] \"mirror/1/w\" part 1 0 4 1 copy\n"
      "buffer %7: mirror f32[4] \"mirror/1/w/momentum\" part 1 0 4 1 copy\n"
      "buffer %8: temporary f32[4]\n"
      "buffer %9: temporary f32[4] view %8\n"
      "compute ^0: %3 = aten::mul.Tensor(%0, %0) \"backward\"\n"
      "compute ^1: %4 = aten::mul.Tensor(%2, %2) \"backward\"\n"
      "compute ^2: %5 = motley::pack([%3]) \"mirror: bucket 0\"\n"
      "compute ^3: motley::update(\"sgd\", [%2, %0], [%4, %3], [%2, %1], [], none, none, none, "
      "0.1, "
      "0.0, [0.9, 0.0]) \"bucket 0\" free %3 %4\n"
      "peer ^4: motley::send(%5, 1) wait ^2 \"mirror: bucket 0\" free %5\n"
      "peer ^5: %8 = motley::receive(1) wait ^1 \"mirror: bucket 0\"\n"
      "compute ^6: %9 = motley::unpack(%8) wait ^5 \"mirror: bucket 0\" free %8\n"
      "compute ^7: motley::update(\"sgd\", [%6], [%9], [%7], [], none, none, none, 0.1, 0.0, [0.9, "
      "0.0]) \"mirror of a:1: bucket 0\" free %9\n");
  const MirrorCost cost = find_mirror_cost(made);
  EXPECT_THAT(cost.kept, ElementsAre(Bytes(32), Bytes(32)));
  EXPECT_THAT(cost.sent, ElementsAre(Bytes(16), Bytes(16)));
  EXPECT_THAT(cost.received, ElementsAre(Bytes(16), Bytes(16)));
  EXPECT_EQ(survives(made), 1);
}

TEST(Mirrored, UnlikeDevicesUpdateIdentical) {
  const std::string text = text_of(mirrored(two_alone(), 1, plan::Updates::kPortable), "a:0");
  EXPECT_THAT(text, Not(HasSubstr("motley::update(")));
  EXPECT_THAT(text, HasSubstr("motley::update.portable(\"sgd\", [%6]"));
}

TEST(Mirrored, WhatAllHaveNeedsNothing) {
  const Program whole = lower_spread(read_graph("mlp"), {3, 1, 2}, Kept::kWhole, Bytes(4 << 20));
  EXPECT_EQ(mirrored(whole, 2), whole);
}

TEST(Mirrored, AreWrittenWhereTheStepIsDecided) {
  for (const char* model : {"mlp", "gpt"})
    for (const Bytes bucket : {Bytes(4 << 10), Bytes(4 << 20)}) {
      const Program lowered = lower_spread(read_graph(model), {3, 1, 2}, Kept::kInParts, bucket);
      const std::size_t before =
          program::find_commit(with_commit(lowered)->devices[0])->written.size();
      for (const int survive : {1, 2}) {
        const auto made = with_commit(mirrored(lowered, survive));
        ASSERT_TRUE(made) << made.error().message;
        EXPECT_EQ(survives(*made), survive);
        for (const program::DeviceProgram& device : made->devices) {
          const auto commit = program::find_commit(device);
          ASSERT_TRUE(commit);
          // No more must be copied before a step than without mirrors.
          EXPECT_LE(commit->written.size(), before);
        }
        EXPECT_EQ(program::parse_program(program::print_program(*made), "again").value(), *made);
      }
    }
}

// One device keeps rows of states of parameters that others have whole. Devices that have the
// parameter make its rows themselves.
TEST(Mirrored, StatesInRowsAreSentGradientsAlone) {
  const graph::Graph graph = read_graph("mlp");
  const graph::LayerChain chain = graph::find_layer_chain(graph);
  plan::Plan plan;
  plan.model_hash = "model";
  plan.recipe.optimizer.kind = plan::OptimizerKind::kAdamW;
  plan.global_batch = 8;
  plan::Region all{{DeviceId(0)}, {1.0}};
  for (std::size_t i = 0; i < chain.of_op.size(); ++i)
    plan::append(all.covers, static_cast<std::int64_t>(i));
  plan.replicas = {{4, {all}, 1}, {4, {all}, 1}};
  plan.replicas[1].regions[0].devices = {DeviceId(1)};
  plan.owners = {{{"*"}, {{DeviceId(0), 1.0}, {DeviceId(1), 1.0}}}};
  cluster::Cluster cluster;
  cluster.nodes.push_back({"a"});
  for (int i = 0; i < 2; ++i) {
    cluster::Device& device = cluster.devices.emplace_back();
    device.node = NodeId(0);
    device.name = "a:" + std::to_string(i);
    device.kind = "cpu";
    device.index = i;
  }
  const auto lowered = lower(graph, plan, cluster);
  ASSERT_TRUE(lowered) << lowered.error().message;
  EXPECT_EQ(survives(*lowered), 0);
  const Program made = mirrored(*lowered, 1);
  EXPECT_EQ(survives(made), 1);
  const MirrorCost cost = find_mirror_cost(made);
  Bytes kept(0), sent(0);
  for (const std::size_t rank : {0, 1}) {
    kept += cost.kept[rank];
    sent += cost.sent[rank];
  }
  // Each trained element has two states and one gradient.
  EXPECT_EQ(kept.value, 2 * sent.value);
}

TEST(Mirrored, NamesOriginals) {
  program::Buffer buffer{BufferKind::kMirror, DType::kF32, {1}, "mirror/12/a/mirror/b", {}, {}};
  EXPECT_EQ(buffer.tensor(), "a/mirror/b");
  buffer.kind = BufferKind::kState;
  EXPECT_EQ(buffer.tensor(), "mirror/12/a/mirror/b");
}

}  // namespace
}  // namespace motley::synth
