#include "motley/synth/ranks/sharding_rules.h"

#include <gtest/gtest.h>

#include "motley/testing/golden.h"
#include "motley/testing/split_operator.h"

namespace motley::synth {
namespace {

TEST(ShardingRules, OfIdenticalOperatorsAreThoseOfEachAlone) {
  for (const char* model : {"mlp", "cnn", "gpt"}) {
    const graph::Graph& graph = read_graph(model);
    const std::vector<graph::ShardingRule> rules = find_rules(graph, 6);
    ASSERT_EQ(rules.size(), graph.ops.size());
    for (std::size_t i = 0; i < rules.size(); ++i)
      EXPECT_EQ(rules[i], graph::find_rule_or_whole(graph, OpId(static_cast<std::int64_t>(i)),
                                                    {{"batch", 6}}))
          << model << " " << i;
  }
}

TEST(ShardingRules, OfOperatorsThatDifferAreTheirOwn) {
  // Each differs from the one before in one thing: an operand's shape, the dimension, keepdim.
  const graph::Graph graph = small_graph(
      "param %0: f32[4, 4] \"a\"\nparam %1: f32[4, 5] \"b\"\n"
      "op %2: f32[4, 4] = aten::mm(%0, %0) fwd \"\"\n"
      "op %3: f32[4, 5] = aten::mm(%0, %1) fwd \"\"\n"
      "op %4: f32[4] = aten::sum.dim_IntList(%2, [0], false, none) fwd \"\"\n"
      "op %5: f32[4] = aten::sum.dim_IntList(%2, [1], false, none) fwd \"\"\n"
      "op %6: f32[4, 1] = aten::sum.dim_IntList(%2, [1], true, none) fwd \"\"\n");
  const std::vector<graph::ShardingRule> rules = find_rules(graph, 6);
  for (std::size_t i = 0; i < rules.size(); ++i)
    EXPECT_EQ(rules[i],
              graph::find_rule_or_whole(graph, OpId(static_cast<std::int64_t>(i)), {{"batch", 6}}))
        << i;
}

TEST(ShardingRules, OneDeviceSplitsNothing) {
  const graph::Graph& graph = read_graph("mlp");
  Sharding sharding;
  sharding.devices = {"a"};
  sharding.shares = {1};
  sharding.batch = 6;
  for (const graph::ShardingRule& rule :
       find_rules_of(graph, sharding, plan::BatchNormMode::kGlobal))
    EXPECT_TRUE(rule.factors.empty());
}

TEST(ShardingRules, InputsHoldSamplesInTheirFirstDimension) {
  const graph::Graph graph = small_graph(
      "input %0: f32[batch, 3] \"x\"\nparam %1: f32[3] \"w\"\n"
      "op %2: f32[batch, 3] = aten::mul.Tensor(%0, %1) fwd \"\"\n");
  EXPECT_EQ(input_form(graph, ValueId(0), 8), (graph::Form{graph::FormKind::kSharded, 0, 1, 8, 1}));
  EXPECT_EQ(input_form(graph, ValueId(1), 8), graph::kWholeForm);
}

}  // namespace
}  // namespace motley::synth
