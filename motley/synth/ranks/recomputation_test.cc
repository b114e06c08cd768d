#include "motley/synth/ranks/recomputation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "motley/graph/graph_text.h"
#include "motley/synth/ranks/lower_sharded.h"
#include "motley/testing/golden.h"

namespace motley::synth {
namespace {

/// y = exp(exp(exp(x))); the backward pass reads all three results.
constexpr const char* kChain =
    "motley.graph/1\nname \"g\"\nsize batch 1 64\ninput %0: f32[batch, 4] \"x\"\n"
    "op %1: f32[batch, 4] = aten::exp(%0) fwd \"\"\n"
    "op %2: f32[batch, 4] = aten::exp(%1) fwd \"\"\n"
    "op %3: f32[batch, 4] = aten::exp(%2) fwd \"\"\n"
    "op %4: f32[] = aten::sum(%3, none) fwd \"\"\n"
    "op %5: f32[batch, 4] = aten::neg(%3) bwd \"\"\n"
    "op %6: f32[batch, 4] = aten::mul.Tensor(%5, %2) bwd \"\"\n"
    "op %7: f32[batch, 4] = aten::mul.Tensor(%6, %1) bwd \"\"\n"
    "op %8: f32[] = aten::sum(%7, none) bwd \"\"\noutput loss %4\noutput metric %8 \"m\"\n";

/// Returns "exp exp ..." for a step in which these operators are recomputed.
std::string names(const std::vector<plan::OpRange>& again) {
  const auto graph = graph::parse_graph(kChain, "g");
  EXPECT_TRUE(graph) << graph.error().message;
  auto made = accumulate(*graph, 4, 1);
  EXPECT_TRUE(made) << made.error().message;
  const Accumulation step = recompute(*std::move(made), {{again}, {0}});
  EXPECT_EQ(step.copies.size(), step.graph.ops.size());
  std::string text;
  for (std::size_t i = 0; i < step.graph.ops.size(); ++i) {
    const graph::Op& op = step.graph.ops[i];
    for (const ValueId output : op.outputs)
      EXPECT_EQ(step.graph.value(output).producer, OpId(static_cast<std::int64_t>(i)));
    if (!step.copies[i].of.is_none())
      text += (text.empty() ? "" : " ") + op.name.substr(6) +
              (op.direction == graph::Direction::kForward ? "" : "'");
  }
  return text;
}

TEST(Recompute, NothingAndWhatNobodyWants) {
  EXPECT_EQ(names({}), "exp exp exp sum neg' mul' mul' sum'");
  EXPECT_EQ(names({{3, 4}}), "exp exp exp sum neg' mul' mul' sum'");
  EXPECT_EQ(names({{4, 8}}), "exp exp exp sum neg' mul' mul' sum'");  // backward operators
}

TEST(Recompute, AsLateAsCanBeAndOnce) {
  EXPECT_EQ(names({{0, 1}}), "exp exp exp sum neg' mul' exp' mul' sum'");
  EXPECT_EQ(names({{1, 2}}), "exp exp exp sum neg' exp' mul' mul' sum'");
  // The last needs the earlier ones, whose copies then serve their own readers as well.
  EXPECT_EQ(names({{0, 3}}), "exp exp exp sum exp' exp' exp' neg' mul' mul' sum'");
}

// With several micro-batches each recomputes its own; operators before or after all of them stay.
TEST(Recompute, OfEachMicroBatch) {
  const graph::Graph graph = read_graph("mlp");
  auto made = accumulate(graph, 8, 2);
  ASSERT_TRUE(made) << made.error().message;
  const Accumulation before = *made;
  const Accumulation step =
      recompute(*std::move(made), {{{{0, static_cast<std::int64_t>(graph.ops.size())}}}, {0, 0}});
  EXPECT_GT(step.graph.ops.size(), before.graph.ops.size());
  EXPECT_EQ(step.early, before.early);
  EXPECT_EQ(step.late, step.graph.ops.size() - (before.graph.ops.size() - before.late));
  for (const std::int64_t micro_batch : {0, 1}) {
    const auto more = [&](const Accumulation& of) {
      return std::count_if(of.copies.begin(), of.copies.end(), [&](const Copy& copy) {
        return copy.micro_batch == micro_batch && !copy.of.is_none();
      });
    };
    EXPECT_GT(more(step), more(before));
  }
}

/// y = x w' with gradients: both passes read the transpose, the backward pass a copy of it.
constexpr const char* kProduct =
    "motley.graph/1\nname \"g\"\nsize batch 1 64\ninput %0: f32[batch, 4] \"x\"\n"
    "param %1: f32[4, 4] \"w\"\n"
    "op %2: f32[4, 4] = aten::t(%1) fwd \"\"\n"
    "op %3: f32[batch, 4] = aten::mm(%0, %2) fwd \"\"\n"
    "op %4: f32[] = aten::sum(%3, none) fwd \"\"\n"
    "op %5: f32[4, 4] = aten::t(%2) bwd \"\"\n"
    "op %6: f32[batch, 4] = aten::mm(%3, %5) bwd \"\"\n"
    "op %7: f32[] = aten::sum(%6, none) bwd \"\"\noutput loss %4\noutput metric %7 \"m\"\n";

// Two micro-batches, each with a forward and a backward pass: w has four more copies, and values
// made of it stand before their readers.
TEST(Recompute, ParametersAreGatheredForEachPass) {
  const auto graph = graph::parse_graph(kProduct, "g");
  ASSERT_TRUE(graph) << graph.error().message;
  const auto step_of = [&](const GatheredAgain& region) {
    auto made = accumulate(*graph, 8, 2);
    EXPECT_TRUE(made) << made.error().message;
    return recompute(*std::move(made), {{{}}, {0, 0}, {{region}}});
  };
  const Accumulation step = step_of({{}, {"w"}});
  ASSERT_EQ(step.again.size(), 4u);
  std::map<ValueId, std::string> reads;  // by source: its readers and their readers
  std::map<ValueId, ValueId> source_of;
  for (const auto& [again, parameter] : step.again) {
    EXPECT_EQ(step.graph.value(parameter).name, "w");
    EXPECT_EQ(step.graph.value(again).name, "w");
    source_of[again] = again;
  }
  for (const graph::Op& op : step.graph.ops)
    graph::for_each_value(op.arguments, [&](ValueId value) {
      const auto known = source_of.find(value);
      if (known == source_of.end()) return;
      const ValueId source = known->second;
      reads[source] += op.name.substr(6) + " ";
      if (op.name == "aten::t") source_of[op.outputs[0]] = source;
    });
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_EQ(reads[step.again[i].first], i % 2 == 0 ? "t mm " : "t t mm ") << i;
  // A region gathers for its own pass alone; one that receives the transpose gathers nothing.
  EXPECT_EQ(step_of({{{0, 2}}, {"w"}}).again.size(), 2u);
  EXPECT_TRUE(step_of({{{3, 5}}, {"w"}}).again.empty());
  EXPECT_TRUE(step_of({{}, {}}).again.empty());
}

}  // namespace
}  // namespace motley::synth
