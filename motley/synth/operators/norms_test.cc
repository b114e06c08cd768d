#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/synth/operators/rewrite.h"
#include "motley/testing/split_operator.h"

namespace motley::synth {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

const Cut kNormColumns{.dim = 1, .extent = 6};  // 4 and 2 columns

SplitLines split_norm(const std::string& lines, const Cut& cut = kNormColumns) {
  return split_first(small_graph(lines), cut, {2, 1}, 0);
}

/// Mean and variance of [2, 4] local elements, [2, 6] in all, as [2, 1] in double precision.
const std::vector<std::string> kMoments = {
    "aten::var_mean.correction([1], number(0), true) f32[2, 1] f32[2, 1]",
    "aten::_to_copy(dtype(f64), false) f64[2, 1]",
    "aten::_to_copy(dtype(f64), false) f64[2, 1]",
    "aten::addcmul(1) f64[2, 1]",             // variance + mean^2
    "aten::stack([%7, %9], 0) f64[2, 2, 1]",  // and the mean
    "aten::mul.Scalar(number(4.0)) f64[2, 2, 1]",
    "aten::div.Scalar(number(6.0)) f64[2, 2, 1]",
    "aten::select.int(0, 0) f64[2, 1]",
    "aten::select.int(0, 1) f64[2, 1]",
    "aten::addcmul(-1) f64[2, 1]",
    "aten::clamp_min(number(0.0)) f64[2, 1]",
};

/// Removes buffer names.
std::vector<std::string> unnamed(std::vector<std::string> lines) {
  for (std::string& line : lines)
    if (const auto at = line.find("[%"); at != std::string::npos)
      line.replace(at, line.find(']', at) + 1 - at, "[..]");
  return lines;
}

TEST(SplitNorms, ALayerNormAddsUpWhatEachDeviceHas) {
  const SplitLines lines = split_norm(
      "param %0: f32[2, 6] \"x\"\nparam %1: f32[6] \"weight\"\nparam %2: f32[6] \"bias\"\n"
      "op %3: f32[2, 6], %4: f32[2, 1], %5: f32[2, 1] = aten::native_layer_norm(%0, [6], %1, %2, "
      "1e-05) fwd \"\"\n");
  std::vector<std::string> wanted = {"aten::view([2, 4]) f32[2, 4]"};
  wanted.insert(wanted.end(), kMoments.begin(), kMoments.end());
  for (const char* each :
       {"aten::_to_copy(dtype(f32), false) f32[2, 1]",
        "aten::view([2, 1]) f32[2, 1]",  // the mean
        "aten::sub.Tensor(1) f32[2, 4]", "aten::add.Scalar(1e-05, 1) f64[2, 1]",
        "aten::rsqrt f64[2, 1]", "aten::_to_copy(dtype(f32), false) f32[2, 1]",
        "aten::view([2, 1]) f32[2, 1]",  // 1 / deviation
        "aten::mul.Tensor f32[2, 4]", "aten::view([2, 4]) f32[2, 4]", "aten::addcmul(1) f32[2, 4]"})
    wanted.emplace_back(each);
  EXPECT_THAT(unnamed(lines.instructions), ElementsAreArray(unnamed(wanted)));
  EXPECT_THAT(lines.exchanges, ElementsAre("motley::all_reduce 32"));  // 2 * 2 f64
}

TEST(SplitNorms, AnRmsNormNeedsNoMean) {
  const SplitLines lines = split_norm(
      "param %0: f32[2, 6] \"x\"\nparam %1: f32[6] \"weight\"\n"
      "op %2: f32[2, 6], %3: f32[2, 1] = aten::_fused_rms_norm(%0, [6], %1, none) fwd \"\"\n");
  // Without eps: the epsilon of f32, 2^-23.
  EXPECT_THAT(
      lines.instructions,
      ElementsAre("aten::view([2, 4]) f32[2, 4]", "aten::mul.Tensor f32[2, 4]",
                  "aten::sum.dim_IntList([1], true) f32[2, 1]",
                  "aten::div.Scalar(number(6.0)) f32[2, 1]",
                  "aten::add.Scalar(1.1920928955078125e-07, 1) f32[2, 1]", "aten::rsqrt f32[2, 1]",
                  "aten::view([2, 1]) f32[2, 1]", "aten::mul.Tensor f32[2, 4]",
                  "aten::view([2, 4]) f32[2, 4]", "aten::mul.Tensor f32[2, 4]"));
  EXPECT_THAT(lines.exchanges, ElementsAre("motley::all_reduce 8"));  // 2 f32
}

TEST(SplitNorms, TheBackwardPassExchangesTwoSumsOfARow) {
  const SplitLines lines = split_norm(
      "param %0: f32[2, 6] \"grad\"\nparam %1: f32[2, 6] \"x\"\nparam %2: f32[2, 1] \"mean\"\n"
      "param %3: f32[2, 1] \"rstd\"\nparam %4: f32[6] \"weight\"\nparam %5: f32[6] \"bias\"\n"
      "op %6: f32[2, 6], %7: f32[6], %8: f32[6] = aten::native_layer_norm_backward(%0, %1, [6], "
      "%2, %3, %4, %5, [true, true, true]) bwd \"\"\n");
  EXPECT_THAT(lines.exchanges, ElementsAre("motley::all_reduce 16"));  // [2, 2, 1] f32
  // Gradients of weight and bias are sums over the rows, for the local columns.
  const std::vector<std::string>& made = lines.instructions;
  EXPECT_EQ(std::count(made.begin(), made.end(), "aten::sum.dim_IntList([0], false) f32[4]"), 2);
}

TEST(SplitNorms, AGroupNormHasAMeanForEachGroupOfASample) {
  // 2 samples, 4 channels of 3 in 2 groups; cut along the 3: rows of 2 * 2 locally, 2 * 3 in all.
  const SplitLines lines = split_norm(
      "param %0: f32[2, 4, 3] \"x\"\n"
      "op %1: f32[2, 4, 3], %2: f32[2, 2], %3: f32[2, 2] = aten::native_group_norm(%0, none, none, "
      "2, 4, 3, 2, 1e-05) fwd \"\"\n",
      {.dim = 2, .extent = 3});
  EXPECT_EQ(lines.instructions.front(), "aten::view([4, 4]) f32[4, 4]");
  EXPECT_THAT(lines.instructions,
              ::testing::Contains("aten::div.Scalar(number(6.0)) f64[2, 4, 1]"));
  EXPECT_EQ(lines.instructions.back(), "aten::view([2, 4, 2]) f32[2, 4, 2]");
  EXPECT_THAT(lines.exchanges, ElementsAre("motley::all_reduce 64"));  // [2, 4, 1] f64
}

TEST(SplitNorms, AVarianceTakesTheCorrectionOffAllElements) {
  const auto last_of = [](const std::string& op, const std::string& correction) {
    const SplitLines lines =
        split_norm("param %0: f32[2, 6] \"x\"\nop %1: f32[2] = " + op + ".correction(%0, [-1], " +
                   correction + ", false) fwd \"\"\n");
    const std::vector<std::string>& made = lines.instructions;
    EXPECT_THAT(unnamed({made.begin(), made.begin() + 11}), ElementsAreArray(unnamed(kMoments)));
    return std::vector<std::string>(made.begin() + 11, made.end());
  };
  // 6 / (6 - 1), 6 / (6 - 3), 6 / 6.
  EXPECT_THAT(last_of("aten::var", "none"),
              ElementsAre("aten::mul.Scalar(number(1.2)) f64[2, 1]",
                          "aten::_to_copy(dtype(f32), false) f32[2, 1]", "aten::view([2]) f32[2]"));
  EXPECT_EQ(last_of("aten::var", "3").front(), "aten::mul.Scalar(number(2.0)) f64[2, 1]");
  EXPECT_THAT(last_of("aten::std", "0"),
              ElementsAre("aten::mul.Scalar(number(1.0)) f64[2, 1]", "aten::sqrt f64[2, 1]",
                          "aten::_to_copy(dtype(f32), false) f32[2, 1]", "aten::view([2]) f32[2]"));
}

// Their mean is complex, their variance real, so they run whole.
TEST(SplitNorms, OfComplexNumbersRunWhole) {
  const graph::Graph graph = small_graph(
      "param %0: f32[2, 6, 2] \"x\"\nop %1: c64[2, 6] = aten::view_as_complex(%0) fwd \"\"\n"
      "op %2: f32[2] = aten::std.correction(%1, [1], none, false) fwd \"\"\n");
  EXPECT_FALSE(can_rewrite(graph, graph.ops[1], strategy_of(graph, OpId(1), kNormColumns)));
}

TEST(SplitNorms, OfHalfPrecisionRunWhole) {
  const auto is_rewritten = [](const std::string& dtype) {
    const graph::Graph graph =
        small_graph("param %0: " + dtype + "[2, 6] \"x\"\nop %1: " + dtype +
                    "[2] = aten::var.correction(%0, [1], none, false) fwd \"\"\n");
    return can_rewrite(graph, graph.ops[0], strategy_of(graph, OpId(0), kNormColumns));
  };
  EXPECT_TRUE(is_rewritten("f32"));
  EXPECT_TRUE(is_rewritten("f64"));
  EXPECT_FALSE(is_rewritten("bf16"));
}

}  // namespace
}  // namespace motley::synth
