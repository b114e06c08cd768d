#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/testing/split_operator.h"

namespace motley::synth {
namespace {

using ::testing::ElementsAre;

/// motley::dropout(x, p, draw, outer, inner, first, global, run, skip, stride): the local element
/// at [o, e, i] is number (o * global + first + e) * inner + i of its micro-batch.
graph::Graph dropout() {
  return small_graph(
      "input %0: f32[batch, 6, 4] \"x\"\n"
      "op %1: f32[batch, 6, 4], %2: bool[batch, 6, 4] = motley::dropout(%0, 0.5, 7) fwd \"\"\n");
}

graph::Graph random(const std::string& distribution) {
  return small_graph("input %0: f32[batch, 6] \"x\"\nop %1: f32[batch, 6] = motley::random(\"" +
                     distribution + "\", [size(batch), 6], dtype(f32), 3) fwd \"\"\n");
}

std::vector<std::string> lines(const Cut& cut) {
  return split_first(dropout(), cut, {2, 1}, 1, 3).instructions;
}

TEST(SplitRandom, DrawsByThePlaceOfEachElementInAll) {
  const std::string whole = ", number(1), number(0), number(1)) ";
  // Samples 0 and 1 are remote: one local sample of 3, in 1 block of 24 elements per sample.
  EXPECT_THAT(lines({.extent = 3}),
              ElementsAre("motley::dropout(0.5, number(7), 1, 24, number(2), number(3)" + whole +
                          "f32[1, 6, 4] bool[1, 6, 4]"));
  // Places 4 and 5 of each of 3 samples, 4 elements each.
  EXPECT_THAT(lines({.dim = 1, .extent = 6}),
              ElementsAre("motley::dropout(0.5, number(7), 3, 4, number(4), number(6)" + whole +
                          "f32[3, 2, 4] bool[3, 2, 4]"));
  // Columns as 3 and 1 of 4: 18 blocks, the last element of each.
  EXPECT_THAT(lines({.dim = 2, .extent = 4}),
              ElementsAre("motley::dropout(0.5, number(7), 18, 1, number(3), number(4)" + whole +
                          "f32[3, 6, 1] bool[3, 6, 1]"));
  // 6 places as two blocks of 3; the second device has the last one of each.
  EXPECT_THAT(lines({.dim = 1, .extent = 3, .outer = 2}),
              ElementsAre("motley::dropout(0.5, number(7), 6, 4, number(2), number(3)" + whole +
                          "f32[3, 2, 4] bool[3, 2, 4]"));
}

TEST(SplitRandom, MakesItsPartOutOfNothing) {
  const Cut columns{.of = Cut::Of::kResult, .dim = 1, .extent = 6};
  EXPECT_THAT(split_first(random("normal"), columns, {2, 1}, 1, 3).instructions,
              ElementsAre("motley::random(\"normal\", number(3), 3, 1, number(4), number(6), "
                          "number(1), number(0), number(1)) f32[3, 2]"));
}

/// Returns the arguments of drawing instructions from the draw's number on, in program order.
std::vector<std::string> places_of(const graph::Graph& graph, const Sharding& sharding,
                                   std::size_t rank) {
  const program::DeviceProgram device = lower_samples(graph, sharding, rank);
  std::vector<std::string> places;
  for (const program::Instruction& each : device.instructions) {
    if (each.op != "motley::dropout" && each.op != "motley::random") continue;
    std::string& place = places.emplace_back();
    for (std::size_t i = each.arguments.size() - 8; i < each.arguments.size(); ++i)
      place += (place.empty() ? "" : " ") + program::print_argument(each.arguments[i]);
  }
  return places;
}

TEST(SplitRandom, MicroBatchesDrawAsOneBatch) {
  // 6 samples in two micro-batches of 3; the devices have 2 and 1 of each. The second device's are
  // samples 2 and 5. A micro-batch has 3 * 24 elements in one range.
  const Sharding sharding{.shares = {2, 1}, .batch = 3, .micro_batches = 2};
  EXPECT_THAT(places_of(dropout(), sharding, 1),
              ElementsAre("number(7) 1 24 number(2) number(3) number(72) number(0) number(144)",
                          "number(7) 1 24 number(2) number(3) number(72) number(72) number(144)"));
  EXPECT_THAT(places_of(random("uniform"), sharding, 1),
              ElementsAre("number(3) 1 6 number(2) number(3) number(18) number(0) number(36)",
                          "number(3) 1 6 number(2) number(3) number(18) number(18) number(36)"));
}

TEST(SplitRandom, MicroBatchesOfColumnsAreStretchesOfEachRow) {
  // [4, batch] of 6 samples: rows of 3 elements per micro-batch; the second device has one of each.
  const graph::Graph graph = small_graph(
      "input %0: f32[batch, 4] \"x\"\nop %1: f32[4, batch] = aten::t(%0) fwd \"\"\n"
      "op %2: f32[4, batch], %3: bool[4, batch] = motley::dropout(%1, 0.5, 0) fwd \"\"\n");
  EXPECT_THAT(places_of(graph, {.shares = {2, 1}, .batch = 3, .micro_batches = 2}, 1),
              ElementsAre("number(0) 4 1 number(2) number(3) number(3) number(0) number(6)",
                          "number(0) 4 1 number(2) number(3) number(3) number(3) number(6)"));
}

TEST(SplitRandom, WhatHasNoSamplesIsDrawnOnce) {
  const graph::Graph graph = small_graph(
      "input %0: f32[batch, 4] \"x\"\n"
      "op %1: f32[4] = motley::random(\"uniform\", [4], dtype(f32), 5) fwd \"\"\n"
      "op %2: f32[batch, 4] = aten::mul.Tensor(%0, %1) fwd \"\"\n");
  EXPECT_THAT(places_of(graph, {.shares = {2, 1}, .batch = 3, .micro_batches = 2}, 1),
              ElementsAre("number(5) 1 4 number(0) number(1) number(1) number(0) number(1)"));
}

}  // namespace
}  // namespace motley::synth
