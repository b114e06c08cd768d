#include "motley/graph/rules/sharding_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// A graph of one operator; its operands are the first values.
Graph make_graph(std::vector<std::pair<DType, std::vector<std::int64_t>>> operands, Op op,
                 std::vector<std::pair<DType, std::vector<std::int64_t>>> results) {
  Graph graph;
  const auto add = [&](const auto& type) {
    Value value;
    value.dtype = type.first;
    for (const std::int64_t size : type.second) value.shape.emplace_back(size);
    graph.values.push_back(std::move(value));
    return ValueId(static_cast<std::int64_t>(graph.values.size()) - 1);
  };
  for (const auto& operand : operands) add(operand);
  for (const auto& result : results) op.outputs.push_back(add(result));
  graph.ops.push_back(std::move(op));
  return graph;
}

Argument value(std::int64_t id) { return {ValueId(id)}; }
Argument list(std::vector<std::int64_t> values) {
  ArgumentList made;
  for (const std::int64_t each : values) made.push_back({each});
  return {made};
}
Op make_op(std::string name, ArgumentList arguments, std::string overload = "") {
  Op op;
  op.name = std::move(name);
  op.overload = std::move(overload);
  op.arguments = std::move(arguments);
  return op;
}

std::string text_of(const Graph& graph) {
  const auto rule = find_rule(graph, OpId(0), {});
  return rule ? print_rule(*rule) : "none";
}

constexpr DType kF = DType::kF32, kI = DType::kI64;

TEST(ShardingRule, Products) {
  EXPECT_EQ(text_of(make_graph({{kF, {4, 6}}, {kF, {6, 5}}},
                               make_op("aten::mm", {value(0), value(1)}), {{kF, {4, 5}}})),
            "(a b) (b c) -> (a c)");
  const Graph addmm =
      make_graph({{kF, {5}}, {kF, {4, 6}}, {kF, {6, 5}}},
                 make_op("aten::addmm", {value(0), value(1), value(2), {1}, {1}}), {{kF, {4, 5}}});
  const auto rule = find_rule(addmm, OpId(0), {});
  ASSERT_TRUE(rule);
  EXPECT_EQ(print_rule(*rule), "(a) (b c) (c a) -> (b a)");
  EXPECT_THAT(rule->terms, ElementsAre(ElementsAre(1, 2), ElementsAre(0)));
}

TEST(ShardingRule, ViewsAreCutWhereBothShapesAre) {
  const auto view = [](std::vector<std::int64_t> from, std::vector<std::int64_t> to) {
    return text_of(
        make_graph({{kF, from}}, make_op("aten::view", {value(0), list(to)}), {{kF, to}}));
  };
  EXPECT_EQ(view({6, 4}, {2, 12}), "(a*b c) -> (a b*c)");
  EXPECT_EQ(view({2, 3, 4}, {24}), "(a b c) -> (a*b*c)");
  EXPECT_EQ(view({8, 1, 6}, {8, 2, 3}), "(a 1 b*c) -> (a b c)");
  // 4 and 6 do not divide one another; what comes before and after can still be cut.
  EXPECT_EQ(view({5, 4, 6, 7}, {5, 6, 4, 7}), "(a b! c! d) -> (a e! f! d)");
  EXPECT_EQ(view({1}, {}), "(1) -> ()");
  EXPECT_EQ(view({0, 3}, {3, 0}), "(a! b!) -> (c! d!)");
}

TEST(ShardingRule, LocalArgumentsFollowTheParts) {
  const Graph view =
      make_graph({{kF, {6, 4}}}, make_op("aten::view", {value(0), list({2, 12})}), {{kF, {2, 12}}});
  const auto rule = find_rule(view, OpId(0), {});
  ASSERT_TRUE(rule);
  const std::vector<std::int64_t> local{2, 1, 4};  // of factor b, 3, one
  const ArgumentList arguments = local_arguments(view.ops[0], *rule, local, {});
  EXPECT_EQ(arguments[1], list({2, 4}));
}

TEST(ShardingRule, BlocksOfADimensionAreCutAlike) {
  const auto slice = [](std::int64_t start, std::int64_t end) {
    return make_graph({{kF, {4, 12}}},
                      make_op("aten::slice", {value(0), {1}, {start}, {end}, {1}}, "Tensor"),
                      {{kF, {4, end - start}}});
  };
  EXPECT_EQ(text_of(slice(4, 8)), "(a b!*c) -> (a c)");
  EXPECT_EQ(text_of(slice(2, 8)), "(a b!) -> (a c!)");
  const auto rule = find_rule(slice(4, 8), OpId(0), {});
  const std::vector<std::int64_t> local{4, 3, 1};  // one of four in each block
  const ArgumentList arguments = local_arguments(slice(4, 8).ops[0], *rule, local, {});
  EXPECT_EQ(arguments[2], Argument{std::int64_t{1}});
  EXPECT_EQ(arguments[3], Argument{std::int64_t{2}});
}

TEST(ShardingRule, SquareIsNotLinear) {
  const auto product = [](std::int64_t a, std::int64_t b) {
    return find_rule(make_graph({{kF, {4}}, {kF, {4}}},
                                make_op("aten::mul", {value(a), value(b)}, "Tensor"), {{kF, {4}}}),
                     OpId(0), {});
  };
  EXPECT_THAT(product(0, 1)->terms, ElementsAre(ElementsAre(0, 1)));
  EXPECT_THAT(product(0, 0)->terms, IsEmpty());
}

TEST(ShardingRule, GradientOfABiasDoesNotDependOnTheInput) {
  const Graph graph =
      make_graph({{kF, {2, 8, 5, 5}}, {kF, {2, 3, 5, 5}}, {kF, {8, 3, 1, 1}}},
                 make_op("aten::convolution_backward", {value(0),
                                                        value(1),
                                                        value(2),
                                                        list({8}),
                                                        list({1, 1}),
                                                        list({0, 0}),
                                                        list({1, 1}),
                                                        {false},
                                                        list({0, 0}),
                                                        {1},
                                                        {ArgumentList{{true}, {true}, {true}}}}),
                 {{kF, {2, 3, 5, 5}}, {kF, {8, 3, 1, 1}}, {kF, {8}}});
  const auto rule = find_rule(graph, OpId(0), {});
  ASSERT_TRUE(rule);
  const int in_channels = rule->operand_factors[1][1][0];
  EXPECT_THAT(rule->independent, ElementsAre(std::pair(2, in_channels)));
}

TEST(ShardingRule, UnknownOperatorsHaveNone) {
  EXPECT_EQ(text_of(make_graph({{kF, {4, 4}}}, make_op("aten::cholesky", {value(0), {false}}),
                               {{kF, {4, 4}}})),
            "none");
  // Arguments that a rule does not cover.
  EXPECT_EQ(
      text_of(make_graph({{kF, {4, 4}}, {DType::kBool, {4, 4}}},
                         make_op("aten::index", {value(0), {ArgumentList{value(1)}}}, "Tensor"),
                         {{kF, {7}}})),
      "none");
  EXPECT_EQ(text_of(make_graph({{kI, {4}}}, make_op("aten::cat", {{ArgumentList{value(0)}}, {0}}),
                               {{kI, {4}}})),
            "(a) -> (a)");
}

}  // namespace
}  // namespace motley::graph
