#include "motley/synth/ranks/pass_fates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/testing/layered_step.h"

namespace motley::synth {
namespace {

using ::testing::ElementsAre;

/// x [batch, 3], w [3, 3], t(w) as %2, x t(w) as %3; then these lines.
graph::Graph step_with(const std::string& lines) {
  return step_of_lines(
      "input %0: f32[batch, 3] \"x\"\nparam %1: f32[3, 3] \"w\"\n"
      "op %2: f32[3, 3] = aten::t(%1) fwd \"\"\n"
      "op %3: f32[batch, 3] = aten::mm(%0, %2) fwd \"\"\n" +
      lines);
}

/// Four samples in two passes.
PassedStep in_two(const graph::Graph& graph) {
  return {graph, {{{0, 2}, {2, 2}}, {0, 0}, {{0, 4}}}};
}

TEST(PassValues, AreCopiesWhereTheyHaveSamples) {
  const graph::Graph graph =
      step_with("op %4: f32[] = aten::sum(%3, none) fwd \"\"\noutput loss %4\n");
  const PassedStep step = in_two(graph);
  const PassValues values = find_pass_values(step);
  EXPECT_TRUE(values.has_copies(ValueId(0)));
  EXPECT_FALSE(values.has_copies(ValueId(2)));
  EXPECT_TRUE(values.has_copies(ValueId(3)));
  EXPECT_EQ(values.home(ValueId(4)), graph::kPartialForm);
  EXPECT_THAT(values.is_of_inputs, ElementsAre(1, 0, 0, 0, 0));
}

TEST(PassFates, WhatWorksOnSamplesIsThereForEachPass) {
  const graph::Graph graph = step_with(
      "op %4: f32[] = aten::sum(%3, none) fwd \"\"\nop %5: f32[batch, 3] = aten::relu(%3) fwd "
      "\"\"\n"
      "output loss %4\n");
  const PassedStep step = in_two(graph);
  const auto found = find_pass_fates(find_pass_values(step));
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_THAT(found->fates, ElementsAre(Fate::kOnce, Fate::kEach, Fate::kEach, Fate::kDropped));
  EXPECT_THAT(found->is_summed, ElementsAre(0, 0, 0, 0, 1, 0));
  EXPECT_TRUE(found->is_there(0, 0));
  EXPECT_FALSE(found->is_there(0, 1));
  EXPECT_EQ(found->part, 1);
}

TEST(PassFates, OfAMeanEachPassCountsAsItsSamples) {
  const graph::Graph graph =
      step_with("op %4: f32[] = aten::mean(%3, none) fwd \"\"\noutput loss %4\n");
  PassedStep step = in_two(graph);
  EXPECT_EQ(find_pass_fates(find_pass_values(step))->fates[2], Fate::kMean);
  step.is_loop = true;  // PyTorch's loop divides the loss instead
  EXPECT_EQ(find_pass_fates(find_pass_values(step))->part, 0.5);
}

TEST(PassFates, RefusesWhatNeedsAllSamplesAtOnce) {
  const graph::Graph graph = step_with(
      "op %4: f32[batch, 3] = aten::cumsum(%3, 0, none) fwd \"rows\"\n"
      "op %5: f32[] = aten::sum(%4, none) fwd \"\"\noutput loss %5\n");
  const PassedStep step = in_two(graph);
  EXPECT_EQ(find_pass_fates(find_pass_values(step)).error().message,
            "s: a step cannot be done in 2 micro-batches: operator aten::cumsum in module 'rows' "
            "needs all samples at once");
}

}  // namespace
}  // namespace motley::synth
