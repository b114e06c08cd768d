#include "motley/synth/state/carried.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "motley/program/memory.h"
#include "motley/program/parts.h"
#include "motley/program/program_text.h"
#include "motley/synth/lower.h"
#include "motley/testing/drawn_stages.h"
#include "motley/testing/golden.h"
#include "motley/testing/uneven_split.h"

namespace motley::synth {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

plan::Plan small_buckets(plan::Plan plan) {
  plan.bucket_bytes = Bytes(1 << 10);
  return plan;
}

cluster::Cluster nine() {
  cluster::Cluster cluster = lab_of_three();
  for (int i = 3; i < 9; ++i) {
    cluster.devices.push_back(cluster.devices.back());
    cluster.devices.back().name = "a:" + std::to_string(i);
    cluster.devices.back().index = i;
  }
  return cluster;
}

/// The labels of a device's exchanges, in order.
std::vector<std::string> exchange_labels(const program::DeviceProgram& device) {
  std::vector<std::string> labels;
  for (const program::Instruction& each : device.instructions)
    if (program::is_exchange(each)) labels.push_back(each.label);
  return labels;
}

std::vector<std::string> sorted_ops(const program::DeviceProgram& device) {
  std::vector<std::string> ops;
  for (const program::Instruction& each : device.instructions) ops.push_back(each.full_name());
  std::sort(ops.begin(), ops.end());
  return ops;
}

class CarriedModels
    : public ::testing::TestWithParam<std::tuple<const char*, plan::OptimizerKind>> {};

TEST_P(CarriedModels, AreProgramsOfTheSameInstructions) {
  const auto& [model, optimizer] = GetParam();
  const auto lowered =
      lower(read_graph(model), small_buckets(uneven_split(optimizer)), lab_of_three());
  ASSERT_TRUE(lowered) << lowered.error().message;
  const auto most = static_cast<double>(count_carriable(*lowered));
  EXPECT_GT(most, 1);
  for (const plan::Carried carried :
       {plan::Carried{1, 0}, {most, 0}, {1, 1}, {most + 7, 0}, {most + 7, 2}, {1, 999}}) {
    const program::Program made = with_carried(*lowered, carried);
    EXPECT_TRUE(program::verify_program(made, "carried"));
    EXPECT_EQ(program::parse_program(program::print_program(made), "again").value(), made);
    for (std::size_t rank = 0; rank < made.devices.size(); ++rank)
      EXPECT_EQ(sorted_ops(made.devices[rank]), sorted_ops(lowered->devices[rank]));
    EXPECT_EQ(made == *lowered, most <= static_cast<double>(carried.skipped));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CarriedModels,
                         ::testing::Combine(::testing::Values("mlp", "cnn", "gpt"),
                                            ::testing::Values(plan::OptimizerKind::kSgd,
                                                              plan::OptimizerKind::kAdamW,
                                                              plan::OptimizerKind::kMuon)));

// Two layers on two devices: "bucket 0" has the loss, so 1 (b's gradient) and 2 (a's) can be
// carried. The forward pass reads a first.
program::Program two_layers() {
  std::string text = "motley.program/1\nmodel \"m\" plan \"p\" global_batch 2\ngroup 0: 0 1\n";
  for (const std::string rank : {"0", "1"})
    text += "device \"d:" + rank + "\" samples 1 first " + rank +
            "\n"
            "buffer %0: parameter f32[4] \"a\"\nbuffer %1: parameter f32[4] \"b\"\n"
            "buffer %2: input f32[4] \"x\"\nbuffer %3: temporary f32[4]\n"
            "buffer %4: temporary f32[4]\nbuffer %5: temporary f32[]\n"
            "buffer %6: temporary f32[1]\nbuffer %7: temporary f32[2]\n"
            "buffer %8: temporary f32[] view %7\nbuffer %9: temporary f32[1] view %7\n"
            "buffer %10: temporary f32[4]\nbuffer %11: temporary f32[4] view %10\n"
            "buffer %12: temporary f32[4]\nbuffer %13: temporary f32[4] view %12\n"
            "compute ^0: %2 = motley::load(0)\n"
            "compute ^1: %3 = aten::mul.Tensor(%2, %0)\n"
            "compute ^2: %4 = aten::mul.Tensor(%3, %1)\n"
            "compute ^3: %5 = aten::sum(%4) free %4\n"
            "compute ^4: %6 = motley::stop_request()\n"
            "compute ^5: %7 = motley::pack([%5, %6]) \"bucket 0\" free %5 %6\n"
            "transfer ^6: motley::all_reduce(%7) group 0 wait ^5 \"bucket 0\"\n"
            "compute ^7: %10 = motley::pack([%3]) \"bucket 1\" free %3\n"
            "transfer ^8: motley::all_reduce(%10) group 0 wait ^7 \"bucket 1\"\n"
            "compute ^9: %12 = motley::pack([%2]) \"bucket 2\"\n"
            "transfer ^10: motley::all_reduce(%12) group 0 wait ^9 \"bucket 2\"\n"
            "compute ^11: %8, %9 = motley::unpack(%7) wait ^6 \"bucket 0\"\n"
            "compute ^12: %11 = motley::unpack(%10) wait ^8 \"bucket 1\"\n"
            "compute ^13: motley::update(\"sgd\", [%1], [%11], [], [], none, none, none, 0.1, 0.0, "
            "[0.0, 0.0]) \"bucket 1\" free %10 %11\n"
            "compute ^14: %13 = motley::unpack(%12) wait ^10 \"bucket 2\"\n"
            "compute ^15: motley::update(\"sgd\", [%0], [%13], [], [], none, none, none, 0.1, 0.0, "
            "[0.0, 0.0]) \"bucket 2\" free %12 %13\n"
            "compute ^16: motley::report(%8, %9, none, []) free %7 %8 %9\n";
  auto program = program::parse_program(text, "two layers");
  EXPECT_TRUE(program) << program.error().message;
  return *std::move(program);
}

TEST(Carried, AnUpdateComesInFrontOfTheFirstReader) {
  const program::Program program = two_layers();
  EXPECT_EQ(count_carriable(program), 2) << "the loss is reported in its step";
  const program::DeviceProgram made = with_carried(program, {2, 0}).devices[1];
  EXPECT_THAT(exchange_labels(made),
              ElementsAre("last step's bucket 2", "last step's bucket 1", "bucket 0"));
  std::vector<std::string> computed;
  for (const program::Instruction& each : made.instructions)
    if (each.lane == Lane::kCompute)
      computed.push_back(each.op + (each.is_carried ? " carried" : ""));
  EXPECT_THAT(computed,
              ElementsAre("motley::load", "motley::unpack carried", "motley::update carried",
                          "aten::mul", "motley::unpack carried", "motley::update carried",
                          "aten::mul", "aten::sum", "motley::stop_request", "motley::pack",
                          "motley::pack", "motley::pack", "motley::unpack", "motley::report"));
  for (const std::int64_t carried : {10, 12})
    EXPECT_EQ(made.buffer(BufferId(carried)).kind, program::BufferKind::kCarried);
  EXPECT_EQ(made.buffer(BufferId(7)).kind, program::BufferKind::kTemporary);
  EXPECT_THAT(made.instructions[0].waits, IsEmpty()) << "its operand is of the step before";
}

TEST(Carried, OfAFractionsExchangeTheRestEndsInItsStep) {
  const program::DeviceProgram made = with_carried(two_layers(), {1.25, 0}).devices[0];
  EXPECT_THAT(
      exchange_labels(made),
      ElementsAre("last step's bucket 2", "last step's rest of bucket 1", "bucket 0", "bucket 1"));
  for (const program::Instruction& each : made.instructions) {
    if (!program::is_exchange(each) || !each.label.ends_with("bucket 1")) continue;
    EXPECT_EQ(program::exchanged_bytes(made, each), Bytes(each.is_carried ? 4 : 12));
  }
  // A quarter of four elements and no less.
  EXPECT_EQ(with_carried(two_layers(), {1.2, 0}), with_carried(two_layers(), {1, 0}));
}

// Between the steps two buckets of 16 bytes are there; at the peak of the forward pass the sums.
TEST(Carried, WhatIsCarriedTakesMemoryAtBothEnds) {
  const program::Program program = two_layers();
  const Bytes without = program::find_memory_peak(program.devices[0]).total;
  const program::MemoryPeak with =
      program::find_memory_peak(with_carried(program, {2, 0}).devices[0]);
  EXPECT_GE(with.total, without);
  EXPECT_GE(with.exchange, Bytes(16));
  program::DeviceProgram nothing_else = with_carried(program, {1, 0}).devices[0];
  EXPECT_EQ(nothing_else.buffer(BufferId(12)).kind, program::BufferKind::kCarried);
}

TEST(Carried, AProgramThatMixesStepsIsRefused) {
  program::Program made = with_carried(two_layers(), {1, 0});
  for (program::Instruction& each : made.devices[0].instructions)
    if (each.op == "motley::update" && each.is_carried) each.is_carried = false;
  const auto verified = program::verify_program(made, "p");
  ASSERT_FALSE(verified);
  EXPECT_THAT(verified.error().message, ::testing::HasSubstr("belongs to the step before"));
  made = with_carried(two_layers(), {1, 0});
  made.devices[0].buffers.push_back({.kind = program::BufferKind::kCarried, .shape = {1}});
  EXPECT_THAT(program::verify_program(made, "p").error().message,
              ::testing::HasSubstr("carried to the next step, and yet never defined"));
}

class CarriedStages : public ::testing::TestWithParam<const char*> {};

TEST_P(CarriedStages, AreSoundHoweverModelsAreCut) {
  const graph::Graph graph = read_graph(GetParam());
  int carried = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    StagesDraw draw(graph, seed);
    plan::Plan plan = small_buckets(draw.plan());
    const auto lowered = lower(graph, plan, nine());
    if (!lowered) continue;
    const auto most = static_cast<std::size_t>(count_carriable(*lowered));
    if (most == 0) continue;
    for (int drawn = 0; drawn < 4; ++drawn) {
      const auto skipped = static_cast<std::int64_t>(draw.below(most));
      plan.carried = {static_cast<double>(1 + draw.below(most)) - (drawn % 2 == 0 ? 0 : 0.5),
                      skipped};
      const auto made = lower(graph, plan, nine());
      EXPECT_TRUE(made) << seed << ": " << made.error().message;
      ++carried;
    }
  }
  EXPECT_GT(carried, 20);
}

INSTANTIATE_TEST_SUITE_P(Models, CarriedStages, ::testing::Values("mlp", "gpt"));

}  // namespace
}  // namespace motley::synth
