#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/testing/split_operator.h"

namespace motley::synth {
namespace {

using ::testing::ElementsAre;

/// motley::dropout(x, p, operator, outer, inner, first, global): the element at [o, e, i] here is
/// number (o * global + first + e) * inner + i of all, which its draw belongs to.
graph::Graph dropout(const std::string& train) {
  return small_graph(
      "input %0: f32[batch, 6, 4] \"x\"\n"
      "op %1: f32[batch, 6, 4], %2: bool[batch, 6, 4] = aten::native_dropout(%0, "
      "0.5, " +
      train + ") fwd \"\"\n");
}

std::vector<std::string> lines(const Cut& cut, const std::string& train = "true") {
  return split_first(dropout(train), cut, {2, 1}, 1, 3).instructions;
}

TEST(SplitDropout, DrawsByThePlaceOfEachElementInAll) {
  // Samples 0 and 1 are elsewhere: one sample of 3, in 1 block of 24 elements a sample.
  EXPECT_THAT(lines({.extent = 3}),
              ElementsAre("motley::dropout(0.5, number(0), 1, 24, number(2), number(3)) "
                          "f32[1, 6, 4] bool[1, 6, 4]"));
  // Places 4 and 5 of each of 3 samples, 4 elements each.
  EXPECT_THAT(lines({.dim = 1, .extent = 6}),
              ElementsAre("motley::dropout(0.5, number(0), 3, 4, number(4), number(6)) "
                          "f32[3, 2, 4] bool[3, 2, 4]"));
  // Columns as 3 and 1 of 4: 18 blocks, the last element of each.
  EXPECT_THAT(lines({.dim = 2, .extent = 4}),
              ElementsAre("motley::dropout(0.5, number(0), 18, 1, number(3), number(4)) "
                          "f32[3, 6, 1] bool[3, 6, 1]"));
  // 6 places as two blocks of 3, of which the second device has the last one each.
  EXPECT_THAT(lines({.dim = 1, .extent = 3, .outer = 2}),
              ElementsAre("motley::dropout(0.5, number(0), 6, 4, number(2), number(3)) "
                          "f32[3, 2, 4] bool[3, 2, 4]"));
}

TEST(SplitDropout, ThatIsSwitchedOffStaysAsItIs) {
  EXPECT_THAT(lines({.extent = 3}, "false"),
              ElementsAre("aten::native_dropout(0.5, false) f32[1, 6, 4] bool[1, 6, 4]"));
}

TEST(SplitDropout, MicroBatchesDrawAsOneBatch) {
  // 6 samples in two micro-batches of 3, of which the devices have 2 and 1: the second device's are
  // samples 2 and 5. Operator 0 is that of the model in both.
  const program::DeviceProgram device =
      lower_samples(dropout("true"), {.shares = {2, 1}, .batch = 3, .micro_batches = 2}, 1);
  std::vector<std::string> places;
  for (const program::Instruction& each : device.instructions) {
    if (each.op != "motley::dropout") continue;
    std::string& place = places.emplace_back();
    for (std::size_t i = 2; i < each.arguments.size(); ++i)
      place += (i == 2 ? "" : " ") + program::print_argument(each.arguments[i]);
  }
  EXPECT_THAT(places, ElementsAre("number(0) 1 24 number(2) number(3)",
                                  "number(0) 1 24 number(5) number(3)"));
}

}  // namespace
}  // namespace motley::synth
