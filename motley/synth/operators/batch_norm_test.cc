#include "motley/synth/operators/batch_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/testing/split_operator.h"

namespace motley::synth {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kSources[] =
    "input %0: f32[batch, 3, 2, 2] \"x\"\nparam %1: f32[3] \"weight\"\nparam %2: f32[3] \"bias\"\n"
    "buffer %3: f32[3] \"mean\"\nbuffer %4: f32[3] \"variance\"\n";

graph::Graph batch_norm(const std::string& training) {
  return small_graph(kSources +
                     ("op %5: f32[batch, 3, 2, 2], %6: f32[3], %7: f32[3], %8: f32[3], %9: f32[3] "
                      "= aten::_native_batch_norm_legit_functional(%0, %1, %2, %3, %4, " +
                      training + ", 0.1, 1e-05) fwd \"\"\n"));
}

TEST(SplitBatchNorm, NormalisesByTheSumsOfAllSamples) {
  const SplitLines lines = split_first(batch_norm("true"), {.extent = 4}, {3, 1}, 1, 4);
  // 3 channels, each of 4 samples * 2 * 2 elements over both devices.
  EXPECT_THAT(lines.instructions,
              ElementsAre("motley::batch_norm_sums f64[2, 3]",
                          "motley::batch_norm(number(16), 0.1, 1e-05) f32[1, 3, 2, 2] f32[3] "
                          "f32[3] f32[3] f32[3]"));
  EXPECT_THAT(lines.exchanges, ElementsAre("motley::all_reduce 48"));  // 2 * 3 f64
}

TEST(SplitBatchNorm, SplitWithinSamplesItIsTheSame) {
  const SplitLines lines = split_first(batch_norm("true"), {.dim = 2, .extent = 2}, {1, 1}, 0, 4);
  EXPECT_EQ(lines.instructions.back(),
            "motley::batch_norm(number(16), 0.1, 1e-05) f32[4, 3, 1, 2] f32[3] f32[3] f32[3] "
            "f32[3]");
}

TEST(SplitBatchNorm, BackwardHasTwoSumsOfAChannel) {
  const graph::Graph graph = small_graph(
      std::string(kSources) +
      "param %5: f32[4, 3, 2, 2] \"grad\"\nparam %6: f32[3] \"m\"\nparam %7: f32[3] \"r\"\n"
      "op %8: f32[batch, 3, 2, 2], %9: f32[3], %10: f32[3] = aten::native_batch_norm_backward("
      "%5, %0, %1, %3, %4, %6, %7, true, 1e-05, [true, true, true]) bwd \"\"\n");
  const SplitLines lines = split_first(graph, {.extent = 4}, {3, 1}, 0, 4);
  EXPECT_THAT(lines.instructions,
              ElementsAre("motley::batch_norm_backward_sums f64[2, 3]",
                          "motley::batch_norm_backward(number(16)) f32[3, 3, 2, 2] f32[3] f32[3]"));
  EXPECT_THAT(lines.exchanges, ElementsAre("motley::all_reduce 48"));
}

TEST(SplitBatchNorm, WithGivenStatisticsItStaysAsItIs) {
  const SplitLines lines = split_first(batch_norm("false"), {.extent = 4}, {3, 1}, 1, 4);
  EXPECT_EQ(lines.instructions.size(), 1U);
  EXPECT_THAT(lines.exchanges, IsEmpty());
  EXPECT_FALSE(trains_batch_norm(batch_norm("false").ops[0]));
  EXPECT_TRUE(trains_batch_norm(batch_norm("true").ops[0]));
}

TEST(SplitBatchNorm, LocalStatisticsAreWeighedTerms) {
  // Local statistics: only the running mean and variance become terms: 3 of 4 samples weigh 3/4.
  const program::DeviceProgram device =
      lower_samples(batch_norm("true"), {.shares = {3, 1}, .batch = 4}, 0,
                    {.batch_norm = plan::BatchNormMode::kLocal});
  std::vector<std::string> made;
  for (const program::Instruction& each : device.instructions)
    if (each.origin == OpId(0))
      made.push_back(each.full_name() +
                     (each.op == "aten::mul" ? print_argument(each.arguments[1]) : ""));
  EXPECT_THAT(made, ElementsAre("aten::_native_batch_norm_legit_functional",
                                "aten::mul.Scalarnumber(0.75)", "aten::mul.Scalarnumber(0.75)"));
}

}  // namespace
}  // namespace motley::synth
