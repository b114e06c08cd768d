#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/testing/split_operator.h"

namespace motley::synth {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const Cut kTableRows{.extent = 5};

graph::Graph embedding() {
  return small_graph(
      "input %0: i64[batch] \"ids\"\nparam %1: f32[5, 3] \"table\"\n"
      "op %2: f32[batch, 3] = aten::embedding(%1, %0, -1, false, false) fwd \"\"\n");
}

TEST(SplitVocabulary, AnEmbeddingPicksItsOwnRowsAndZerosForTheOthers) {
  // Rows 0 to 2 and 3 to 4: the second device's row of id i is i - 3, if that is 0 or 1.
  const SplitLines lines = split_first(embedding(), kTableRows, {3, 2}, 1, 4);
  EXPECT_THAT(
      lines.instructions,
      ElementsAre("aten::sub.Scalar(number(3), 1) i64[4]", "aten::ge.Scalar(number(2)) bool[4]",
                  "aten::lt.Scalar(number(0)) bool[4]", "aten::logical_or bool[4]",
                  "aten::masked_fill.Scalar(number(0)) i64[4]",
                  "aten::embedding(-1, false, false) f32[4, 3]", "aten::unsqueeze(-1) bool[4, 1]",
                  "aten::masked_fill.Scalar(number(0.0)) f32[4, 3]"));
  // Each id's row is on one device, so the result is the sum, which is not part of the operator.
  EXPECT_THAT(lines.exchanges, IsEmpty());
}

TEST(SplitVocabulary, WithoutRowsAnEmbeddingIsATermOfZero) {
  const SplitLines lines = split_first(embedding(), kTableRows, {1, 0}, 1, 4);
  EXPECT_THAT(lines.instructions, IsEmpty());  // zeros are not the operator's own
}

TEST(SplitVocabulary, GradientsOfOtherRowsGoToOneMoreRow) {
  const graph::Graph graph = small_graph(
      "input %0: i64[batch] \"ids\"\nparam %1: f32[4, 3] \"grad\"\n"
      "op %2: f32[5, 3] = aten::embedding_dense_backward(%1, %0, 5, 2, false) bwd \"\"\n");
  // The first device has rows 0 to 2. Row 3 of 4 collects the rest, also of padding row 2.
  const SplitLines lines = split_first(graph, {.of = Cut::Of::kResult, .extent = 5}, {3, 2}, 0, 4);
  EXPECT_THAT(
      lines.instructions,
      ElementsAre("aten::sub.Scalar(number(0), 1) i64[4]", "aten::ge.Scalar(number(3)) bool[4]",
                  "aten::lt.Scalar(number(0)) bool[4]", "aten::logical_or bool[4]",
                  "aten::eq.Scalar(number(2)) bool[4]", "aten::logical_or bool[4]",
                  "aten::masked_fill.Scalar(number(3)) i64[4]",
                  "aten::embedding_dense_backward(4, -1, false) f32[4, 3]",
                  "aten::slice.Tensor(0, 0, 3, 1) f32[3, 3]"));
}

graph::Graph log_softmax() {
  return small_graph(
      "param %0: f32[2, 5] \"x\"\n"
      "op %1: f32[2, 5] = aten::_log_softmax(%0, 1, false) fwd \"\"\n");
}

TEST(SplitVocabulary, LogSoftmaxSharesTheLargestAndTheSum) {
  // Three and two of five classes, of two rows.
  const SplitLines lines = split_first(log_softmax(), {.dim = 1, .extent = 5}, {3, 2}, 1);
  EXPECT_THAT(lines.instructions,
              ElementsAre("aten::amax([1], true) f32[2, 1]",  // local maxima
                          "aten::amax([0], false) f32[2]",    // over the devices
                          "aten::sub.Tensor(1) f32[2, 2]", "aten::exp f32[2, 2]",
                          "aten::sum.dim_IntList([1], true) f32[2, 1]", "aten::log f32[2, 1]",
                          "aten::sub.Tensor(1) f32[2, 2]"));
  // 2 devices * 2 rows * 4 bytes; then a sum of 2 rows.
  EXPECT_THAT(lines.exchanges, ElementsAre("motley::all_gather 16", "motley::all_reduce 8"));
}

TEST(SplitVocabulary, WithoutClassesTheLargestIsBelowAll) {
  const SplitLines lines = split_first(log_softmax(), {.dim = 1, .extent = 5}, {1, 0}, 1);
  EXPECT_EQ(lines.instructions.front(),
            "aten::full([2, 1], -inf, dtype(f32), device(local)) f32[2, 1]");
  EXPECT_EQ(lines.instructions.back(), "aten::sub.Tensor(1) f32[2, 0]");
  EXPECT_EQ(lines.exchanges.size(), 2U);
}

TEST(SplitVocabulary, LogSoftmaxBackwardSumsTheGradient) {
  const graph::Graph graph = small_graph(
      "param %0: f32[2, 5] \"grad\"\nparam %1: f32[2, 5] \"y\"\n"
      "op %2: f32[2, 5] = aten::_log_softmax_backward_data(%0, %1, 1, dtype(f32)) bwd \"\"\n");
  const SplitLines lines = split_first(graph, {.dim = 1, .extent = 5}, {3, 2}, 0);
  EXPECT_THAT(lines.instructions,
              ElementsAre("aten::sum.dim_IntList([1], true) f32[2, 1]", "aten::exp f32[2, 3]",
                          "aten::mul.Tensor f32[2, 3]", "aten::sub.Tensor(1) f32[2, 3]"));
  EXPECT_THAT(lines.exchanges, ElementsAre("motley::all_reduce 8"));
}

}  // namespace
}  // namespace motley::synth
