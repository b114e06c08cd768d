#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/synth/operators/rewrite.h"
#include "motley/testing/split_operator.h"

namespace motley::synth {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const Cut kSamples{.extent = 4}, kClasses{.dim = 1, .extent = 5};

/// 4 samples and 5 classes; `rest`: class weights, reduction (1: mean, 2: sum), ignored class.
graph::Graph nll(const std::string& rest) {
  return small_graph(
      "param %0: f32[4, 5] \"x\"\nparam %1: i64[4] \"y\"\nparam %2: f32[5] \"worth\"\n"
      "op %3: f32[], %4: f32[] = aten::nll_loss_forward(%0, %1, " +
      rest + ") fwd \"\"\n");
}

TEST(SplitLosses, AMeanOverSamplesIsTheSumByTheLabelsOfAll) {
  const SplitLines lines = split_first(nll("none, 1, -100"), kSamples, {3, 1}, 0);
  EXPECT_THAT(lines.instructions,
              ElementsAre("motley::label_count(-100) f32[]",
                          "aten::nll_loss_forward(2, -100) f32[] f32[]",  // 2: a sum
                          "aten::div.Tensor f32[]"));
  EXPECT_THAT(lines.exchanges, ElementsAre("motley::all_reduce 4"));  // the count
}

TEST(SplitLosses, OverClassesEachDeviceHasTheTargetsThatAreHere) {
  // The second device has classes 3 and 4; class 2 is ignored.
  const SplitLines lines = split_first(nll("none, 1, 2"), kClasses, {3, 2}, 1);
  EXPECT_THAT(
      lines.instructions,
      ElementsAre("aten::sub.Scalar(number(3), 1) i64[4]", "aten::ge.Scalar(number(2)) bool[4]",
                  "aten::lt.Scalar(number(0)) bool[4]", "aten::logical_or bool[4]",
                  "aten::eq.Scalar(number(2)) bool[4]", "aten::logical_or bool[4]",
                  "aten::masked_fill.Scalar(number(0)) i64[4]", "aten::unsqueeze(1) i64[4, 1]",
                  "aten::gather(1, false) f32[4, 1]", "aten::squeeze.dim(1) f32[4]",
                  "aten::masked_fill.Scalar(number(0.0)) f32[4]", "aten::neg f32[4]",
                  "aten::sum f32[]", "motley::label_count(2) f32[]", "aten::div.Tensor f32[]"));
  // All devices have all labels and compute the same count.
  EXPECT_THAT(lines.exchanges, IsEmpty());
}

TEST(SplitLosses, ClassWeightsAreThoseOfTheTargetsHere) {
  const SplitLines lines = split_first(nll("%2, 1, -100"), kClasses, {3, 2}, 1);
  EXPECT_THAT(lines.exchanges, ElementsAre("motley::all_reduce 4"));  // the targets' weights
  EXPECT_THAT(lines.instructions,
              ::testing::Not(::testing::Contains(::testing::HasSubstr("label_count"))));
  // A device without classes adds zero to both.
  EXPECT_THAT(split_first(nll("%2, 1, -100"), kClasses, {1, 0}, 1).instructions,
              ElementsAre("aten::zeros([], dtype(f32), device(local)) f32[]",
                          "aten::zeros([], dtype(f32), device(local)) f32[]"));
}

TEST(SplitLosses, TheBackwardPassPutsTheGradientAtTheTargetsHere) {
  const graph::Graph graph = small_graph(
      "param %0: f32[] \"grad\"\nparam %1: f32[4, 5] \"x\"\nparam %2: i64[4] \"y\"\n"
      "param %3: f32[] \"total\"\n"
      "op %4: f32[4, 5] = aten::nll_loss_backward(%0, %1, %2, none, 1, -100, %3) bwd \"\"\n");
  const Cut classes{.which = 1, .dim = 1, .extent = 5};
  const std::vector<std::string> made = split_first(graph, classes, {3, 2}, 0).instructions;
  ASSERT_EQ(made.size(), 15U);
  EXPECT_EQ(made.front(), "aten::zeros([4, 3], dtype(f32), device(local)) f32[4, 3]");
  EXPECT_THAT(
      std::vector(made.begin() + 8, made.end()),
      ElementsAre("aten::div.Tensor f32[]", "aten::neg f32[]", "aten::expand([4], false) f32[4]",
                  "aten::masked_fill.Scalar(number(0.0)) f32[4]", "aten::unsqueeze(1) i64[4, 1]",
                  "aten::unsqueeze(1) f32[4, 1]", "aten::scatter.src(1) f32[4, 3]"));
}

}  // namespace
}  // namespace motley::synth
