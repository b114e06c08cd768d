#include "motley/synth/accumulation.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "motley/graph/graph_text.h"
#include "motley/testing/golden.h"

namespace motley::synth {
namespace {

std::int64_t count(const graph::Graph& graph, const std::string& name) {
  return std::count_if(graph.ops.begin(), graph.ops.end(),
                       [&](const graph::Op& op) { return op.full_name() == name; });
}

TEST(Accumulation, CopiesWhatWorksOnSamplesAndAddsItUp) {
  const graph::Graph& graph = read_graph("mlp");
  const auto made = accumulate(graph, 12, 3);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->copies.size(), made->graph.ops.size());
  for (const char* product : {"aten::addmm", "aten::mm"})
    EXPECT_EQ(count(made->graph, product), 3 * count(graph, product)) << product;
  // Views of weights are there once.
  EXPECT_GT(count(graph, "aten::t"), 0);
  EXPECT_LT(count(made->graph, "aten::t"), 3 * count(graph, "aten::t"));
  // Loss and gradients of three micro-batches, and their labels; other outputs go.
  const std::int64_t wanted = std::count_if(
      graph.outputs.begin(), graph.outputs.end(),
      [](const graph::Output& output) { return output.kind != graph::OutputKind::kExtra; });
  const std::int64_t sums = wanted + 1;
  EXPECT_EQ(count(made->graph, "aten::add.Tensor") - 3 * count(graph, "aten::add.Tensor"),
            2 * sums);
  EXPECT_EQ(static_cast<std::int64_t>(made->graph.outputs.size()), wanted);
  const auto read = graph::parse_graph(graph::print_graph(made->graph), "made");
  // A graph but for its inputs, which have all samples.
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message,
            "made: input %0 \"x\": found dimension 0 batch*3, wanted batch\n"
            "made: input %1 \"y\": found dimension 0 batch*3, wanted batch");
}

TEST(Accumulation, OneMicroBatchIsTheGraphWithItsSums) {
  const auto made = accumulate(read_graph("mlp"), 12, 1);
  ASSERT_TRUE(made) << made.error().message;
  for (const Copy& copy : made->copies) EXPECT_EQ(copy.micro_batch, 0);
}

TEST(Accumulation, NeedsEqualMicroBatchesThatTheModelTakes) {
  const graph::Graph& graph = read_graph("mlp");
  const auto uneven = accumulate(graph, 10, 3);
  ASSERT_FALSE(uneven);
  EXPECT_EQ(uneven.error().code, "synth.accumulation");
  EXPECT_EQ(uneven.error().message,
            graph.name + ": a step cannot be done in 3 micro-batches: the global batch is 10");
  graph::Graph large = graph;
  large.sizes[0].min = 5;
  EXPECT_EQ(accumulate(large, 12, 3).error().message,
            graph.name +
                ": a step cannot be done in 3 micro-batches: the model's batches are not as small "
                "as 4");
}

TEST(Accumulation, NumbersAreThoseOfTheWholeBatch) {
  auto graph = graph::parse_graph(
      "motley.graph/1\nname \"n\"\nsize batch 1 64\n"
      "input %0: f32[batch, 3] \"x\"\nparam %1: f32[3, 3] \"a\"\n"
      "op %2: f32[batch, 3] = aten::mm(%0, %1) fwd \"\"\n"
      "op %3: f32[] = aten::sum(%2, none) fwd \"\"\n"
      "op %4: f32[] = aten::div.Scalar(%3, number(batch*3)) fwd \"\"\n"
      "op %5: f32[3, batch] = aten::t(%0) bwd \"\"\n"
      "op %6: f32[3, 3] = aten::mm(%5, %2) bwd \"\"\n"
      "output loss %4\noutput gradient %6 of \"a\"\n",
      "n");
  ASSERT_TRUE(graph) << graph.error().message;
  const auto made = accumulate(*graph, 8, 4);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_NE(graph::print_graph(made->graph).find("number(batch*4*3)"), std::string::npos)
      << graph::print_graph(made->graph);
}

}  // namespace
}  // namespace motley::synth
