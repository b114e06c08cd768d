#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/synth/operators/rewrite.h"
#include "motley/testing/split_operator.h"

namespace motley::synth {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> split_rows(const std::string& lines, const Cut& cut,
                                    const std::vector<double>& shares, std::size_t rank) {
  const SplitLines made = split_first(small_graph(lines), cut, shares, rank, 8);
  EXPECT_THAT(made.exchanges, IsEmpty());
  return made.instructions;
}

TEST(SplitRows, NumbersBeginWithTheFirstRowHere) {
  const Cut eight{.of = Cut::Of::kResult, .extent = 8};
  // Eight rows as five and three: the second device's are 5, 6, 7.
  EXPECT_THAT(split_rows("op %0: i64[8] = aten::arange(8, none, none, none, none) fwd \"\"\n",
                         eight, {5, 3}, 1),
              ElementsAre("aten::arange.start(5, 8) i64[3]"));
  // From 2 on: 7, 8, 9.
  EXPECT_THAT(
      split_rows("op %0: i64[8] = aten::arange.start(2, 10, none, none, none, none) fwd \"\"\n",
                 eight, {5, 3}, 1),
      ElementsAre("aten::arange.start(7, 10) i64[3]"));
  // By whole samples of two rows: 3 and 1 of 4 samples, so the second device has rows 6 and 7.
  EXPECT_THAT(split_rows("op %0: i64[8] = aten::arange(8, none, none, none, none) fwd \"\"\n",
                         {.of = Cut::Of::kResult, .extent = 4, .inner = 2}, {3, 1}, 1),
              ElementsAre("aten::arange.start(6, 8) i64[2]"));
}

constexpr char kPick[] =
    "param %0: f32[8, 4] \"x\"\nparam %1: i64[8] \"y\"\n"
    "op %2: i64[8] = aten::arange(8, none, none, none, none) fwd \"\"\n"
    "op %3: f32[8] = aten::index.Tensor(%0, [%2, %1]) fwd \"\"\n";

TEST(SplitRows, AreIndexedByTheirPlaceHere) {
  const graph::Graph graph = small_graph(kPick);
  const auto lines = [&](const std::vector<double>& shares) {
    const OpId index(1);
    return lines_of(lower_operator(graph, index, strategy_of(graph, index, {.extent = 8}), 1,
                                   shares, {1}))
        .instructions;
  };
  // Numbers 5, 6, 7 less 5 are local rows 0, 1, 2. Tensors: x %0, numbers %1, y %2, difference %3.
  EXPECT_THAT(lines({5, 3}), ElementsAre("aten::sub.Scalar(number(5), 1) i64[3]",
                                         "aten::index.Tensor([%3, %2]) f32[3]"));
  EXPECT_THAT(lines({1, 0}), IsEmpty());
}

TEST(SplitRows, OfSeveralBlocksAreNotConsecutive) {
  const graph::Graph graph = small_graph(kPick);
  const auto is_rewritten = [&](OpId op, const Cut& cut) {
    return can_rewrite(graph, graph.op(op), strategy_of(graph, op, cut));
  };
  const Cut::Of result = Cut::Of::kResult;
  EXPECT_TRUE(is_rewritten(OpId(0), {.of = result, .extent = 4, .inner = 2}));
  EXPECT_FALSE(is_rewritten(OpId(0), {.of = result, .extent = 4, .outer = 2}));
  EXPECT_TRUE(is_rewritten(OpId(1), {.extent = 4, .inner = 2}));
  EXPECT_FALSE(is_rewritten(OpId(1), {.extent = 4, .outer = 2}));
}

}  // namespace
}  // namespace motley::synth
