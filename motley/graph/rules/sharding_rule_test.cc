#include "motley/graph/rules/sharding_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/graph/rules/strategy.h"

namespace motley::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

/// Makes a graph of one operator; its operands are the first values.
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

SymbolicArgument value(std::int64_t id) { return {ValueId(id)}; }
SymbolicArgument list(std::vector<std::int64_t> values) {
  SymbolicArguments made;
  for (const std::int64_t each : values) made.push_back({each});
  return {made};
}
Op make_op(std::string name, SymbolicArguments arguments, std::string overload = "") {
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

// A layer of a profile: devices that share its rows have its whole input and output.
TEST(ShardingRule, LayersOfAProfileAreSplitByRowsOrSamples) {
  const auto graph = make_graph(
      {{kF, {6, 5}}, {kF, {4, 7}}, {kF, {3}}},
      make_op("motley::layer", {value(0), {SymbolicArguments{value(1), value(2)}}, {0}, {1e9}}),
      {{kF, {6, 9}}, {kF, {6, 4, 2}}, {kF, {6, 8}}});
  EXPECT_EQ(text_of(graph), "(a b!) (c d!) (e!) -> (a f!) (a c g!) (a h!)");
  const auto rule = find_rule(graph, OpId(0), {});
  ASSERT_TRUE(rule);
  const auto by_rows = split_strategy(*rule, 2);
  ASSERT_TRUE(by_rows);
  EXPECT_THAT(by_rows->results,
              ElementsAre(kWholeForm, Form{FormKind::kSharded, 1, 1, 4, 1}, kWholeForm));
}

// Gradients of whole values are equal on all devices that share the rows, and terms for samples.
TEST(ShardingRule, GradientsOfLayersFollowTheirParameters) {
  const auto graph = make_graph(
      {{kF, {6, 9}}, {kF, {4, 7}}, {kF, {3}}, {kF, {6, 4, 2}}, {kF, {6, 8}}},
      make_op("motley::layer_backward",
              {value(0), {SymbolicArguments{value(1), value(2)}}, value(3), value(4), {0}, {1e9}}),
      {{kF, {6, 5}}, {kF, {4, 7}}, {kF, {3}}});
  EXPECT_EQ(text_of(graph), "(a b!) (c d!) (e!) (a c f!) (a g!) -> (a h!) (c d!) (e!)");
  const auto rule = find_rule(graph, OpId(0), {});
  ASSERT_TRUE(rule);
  EXPECT_THAT(split_strategy(*rule, 2)->results,
              ElementsAre(kWholeForm, Form{FormKind::kSharded, 0, 1, 4, 1}, kWholeForm));
  EXPECT_THAT(split_strategy(*rule, 0)->results,
              ElementsAre(Form{FormKind::kSharded, 0, 1, 6, 1}, kPartialForm, kPartialForm));
}

TEST(ShardingRule, TransformsKeepTheirDimensionsWhole) {
  constexpr DType kC = DType::kC64;
  EXPECT_EQ(text_of(make_graph({{kF, {4, 8, 6, 3}}},
                               make_op("aten::_fft_r2c", {value(0), list({1, 2}), {1}, {true}}),
                               {{kC, {4, 8, 4, 3}}})),
            "(a b! c! d) -> (a b! e! d)");
  EXPECT_EQ(
      text_of(make_graph({{kC, {4, 5}}}, make_op("aten::_fft_c2r", {value(0), list({1}), {2}, {8}}),
                         {{kF, {4, 8}}})),
      "(a b!) -> (a c!)");
  EXPECT_EQ(text_of(make_graph({{kF, {4, 5, 2}}}, make_op("aten::view_as_complex", {value(0)}),
                               {{kC, {4, 5}}})),
            "(a b c!) -> (a b)");
  EXPECT_EQ(
      text_of(make_graph({{kC, {4}}}, make_op("aten::view_as_real", {value(0)}), {{kF, {4, 2}}})),
      "(a) -> (a b!)");
}

// Python's sum() begins with 0.
TEST(ShardingRule, AddingNothingIsLinear) {
  const auto terms_of = [](double number) {
    const Graph graph = make_graph(
        {{kF, {4}}}, make_op("aten::add", {value(0), {number}, {1}}, "Tensor"), {{kF, {4}}});
    return find_rule(graph, OpId(0), {})->terms;
  };
  EXPECT_THAT(terms_of(0.0), ElementsAre(ElementsAre(0)));
  EXPECT_THAT(terms_of(1.0), IsEmpty());
}

// A bilinear layer: x [4, 6], w [2, 6, 5], y [4, 5] over the common dimensions (4 2 6 5).
TEST(ShardingRule, TrilinearProducts) {
  const Graph graph = make_graph(
      {{kF, {4, 6}}, {kF, {2, 6, 5}}, {kF, {4, 5}}},
      make_op("aten::_trilinear",
              {value(0), value(1), value(2), list({1, 3}), list({0}), list({1, 2}), list({2, 3})}),
      {{kF, {4, 2}}});
  EXPECT_EQ(text_of(graph), "(a b) (c b d) (a d) -> (a c)");
  EXPECT_THAT(find_rule(graph, OpId(0), {})->terms, ElementsAre(ElementsAre(0, 1, 2)));
}

// Pads the first dimension by (0, 0).
TEST(ShardingRule, PadsKeepWholeWhatTheyPad) {
  EXPECT_EQ(
      text_of(make_graph({{kF, {4, 6}}},
                         make_op("aten::constant_pad_nd", {value(0), list({1, 2, 0, 0}), {0.0}}),
                         {{kF, {4, 9}}})),
      "(a b!) -> (a c!)");
}

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
  // 4 and 6 do not divide one another; dimensions before and after can still be cut.
  EXPECT_EQ(view({5, 4, 6, 7}, {5, 6, 4, 7}), "(a b! c! d) -> (a e! f! d)");
  EXPECT_EQ(view({1}, {}), "(1) -> ()");
  EXPECT_EQ(view({0, 3}, {3, 0}), "(a! b!) -> (c! d!)");
}

TEST(ShardingRule, SizesAmongTheArgumentsFollowTheParts) {
  const Graph view =
      make_graph({{kF, {6, 4}}}, make_op("aten::view", {value(0), list({2, 12})}), {{kF, {2, 12}}});
  const auto rule = find_rule(view, OpId(0), {});
  ASSERT_TRUE(rule);
  EXPECT_EQ(print_rule(*rule), "(a*b c) -> (a b*c)");
  EXPECT_THAT(rule->slots, UnorderedElementsAre(SizeSlot{1, 0, {0}}, SizeSlot{1, 1, {1, 2}}));
}

TEST(ShardingRule, BlocksOfADimensionAreCutIdentical) {
  const auto slice = [](std::int64_t start, std::int64_t end) {
    return make_graph({{kF, {4, 12}}},
                      make_op("aten::slice", {value(0), {1}, {start}, {end}, {1}}, "Tensor"),
                      {{kF, {4, end - start}}});
  };
  EXPECT_EQ(text_of(slice(4, 8)), "(a b!*c) -> (a c)");
  EXPECT_EQ(text_of(slice(2, 8)), "(a b!) -> (a c!)");
  const auto rule = find_rule(slice(4, 8), OpId(0), {});
  ASSERT_TRUE(rule);
  // From one to two times the factor c.
  EXPECT_THAT(rule->slots, UnorderedElementsAre(SizeSlot{2, -1, {2}, 1}, SizeSlot{3, -1, {2}, 2}));
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
  const Graph graph = make_graph(
      {{kF, {2, 8, 5, 5}}, {kF, {2, 3, 5, 5}}, {kF, {8, 3, 1, 1}}},
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
                                             {SymbolicArguments{{true}, {true}, {true}}}}),
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
  EXPECT_EQ(text_of(make_graph(
                {{kF, {4, 4}}, {DType::kBool, {4, 4}}},
                make_op("aten::index", {value(0), {SymbolicArguments{value(1)}}}, "Tensor"),
                {{kF, {7}}})),
            "none");
  EXPECT_EQ(
      text_of(make_graph({{kI, {4}}}, make_op("aten::cat", {{SymbolicArguments{value(0)}}, {0}}),
                         {{kI, {4}}})),
      "(a) -> (a)");
}

// A cache of keys before the first token.
TEST(ShardingRule, AnEmptyTensorAddsNothingToWhatIsJoined) {
  const auto graph = make_graph(
      {{kF, {0}}, {kF, {2, 3, 4}}},
      make_op("aten::cat", {{SymbolicArguments{value(0), value(1)}}, {-2}}), {{kF, {2, 3, 4}}});
  EXPECT_EQ(text_of(graph), "(a!) (b c d) -> (b c d)");
  EXPECT_THAT(find_rule(graph, OpId(0), {})->ignored, ElementsAre(0));
}

/// Makes x [6, 4] indexed by [0, 1, ...] and y [6]; `from` makes the row numbers.
Graph indexed_rows(const Op& from, std::int64_t count) {
  Graph graph;
  const auto add = [&](DType dtype, std::vector<std::int64_t> shape, OpId producer = OpId()) {
    Value value;
    value.dtype = dtype;
    value.producer = producer;
    for (const std::int64_t size : shape) value.shape.emplace_back(size);
    graph.values.push_back(std::move(value));
    return ValueId(static_cast<std::int64_t>(graph.values.size()) - 1);
  };
  const ValueId x = add(kF, {6, 4}), y = add(kI, {6});
  Op numbers = from;
  const ValueId rows = add(kI, {count}, OpId(0));
  numbers.outputs = {rows};
  Op index = make_op("aten::index", {{x}, {SymbolicArguments{{rows}, {y}}}}, "Tensor");
  index.outputs = {add(kF, {6}, OpId(1))};
  graph.ops = {numbers, index};
  return graph;
}

TEST(ShardingRule, RowsByTheirOwnNumbersAreOneFactor) {
  const auto rule_of = [](const Op& from) {
    return print_rule(*find_rule(indexed_rows(from, 6), OpId(1), {}));
  };
  EXPECT_EQ(rule_of(make_op("aten::arange", {{6}})), "(a^ b!) (a^) (a^) -> (a^)");
  EXPECT_EQ(rule_of(make_op("aten::arange", {{0}, {6}}, "start")), "(a^ b!) (a^) (a^) -> (a^)");
  // Other numbers, or numbers of another kind, may select any row.
  EXPECT_EQ(rule_of(make_op("aten::arange", {{1}, {7}}, "start")), "(a! b!) (c) (c) -> (c)");
  EXPECT_EQ(rule_of(make_op("aten::randperm", {{6}})), "(a! b!) (c) (c) -> (c)");
}

TEST(ShardingRule, CountingByOnesBeginsLater) {
  const auto arange = [](Op op) { return text_of(make_graph({}, std::move(op), {{kI, {6}}})); };
  EXPECT_EQ(arange(make_op("aten::arange", {{6}})), "-> (a^)");
  EXPECT_EQ(arange(make_op("aten::arange", {{0}, {12}, {2}}, "start_step")), "-> (a!)");
}

TEST(ShardingRule, OwnStatisticsMakeTermsOfWhatIsAveraged) {
  const Graph graph =
      make_graph({{kF, {6, 3}}, {kF, {3}}, {kF, {3}}, {kF, {3}}, {kF, {3}}},
                 make_op("aten::_native_batch_norm_legit_functional",
                         {value(0), value(1), value(2), value(3), value(4), {true}, {0.1}, {1e-5}}),
                 {{kF, {6, 3}}, {kF, {3}}, {kF, {3}}, {kF, {3}}, {kF, {3}}});
  const auto forms = [&](Statistics statistics) {
    const auto rule = find_rule(graph, OpId(0), {}, statistics);
    std::string text;
    const auto way = split_strategy(*rule, 0);
    for (const Form& form : way->results) text += print_form(form) + ' ';
    return text;
  };
  EXPECT_EQ(forms(Statistics::kOfAll), "S(0: 6) R R R R ");
  EXPECT_EQ(forms(Statistics::kOwn), "S(0: 6) R R P P ");
}

/// Returns, by result, the dimensions along which it is identical: "01" for the second of two.
std::string identical(const Graph& graph, const std::vector<IdenticalDims>& operands) {
  std::vector<IdenticalDims> values = operands;
  values.resize(graph.values.size(), 0);
  const auto rule = find_rule_or_whole(graph, OpId(0), {});
  const std::vector<IdenticalDims> results = identical_results(rule, values);
  std::string text;
  for (std::size_t d = 0; d < graph.value(graph.ops[0].outputs[0]).shape.size(); ++d)
    text += (results[0] >> d & 1) != 0 ? '1' : '0';
  return text;
}

TEST(ShardingRule, WhatIsMadeOfNothingOrRepeatedIsIdentical) {
  const Graph full = make_graph({}, make_op("aten::full", {list({6, 4}), {1.0}}), {{kF, {6, 4}}});
  EXPECT_EQ(identical(full, {}), "11");
  const Graph expand =
      make_graph({{kF, {4}}}, make_op("aten::expand", {value(0), list({6, 4})}), {{kF, {6, 4}}});
  EXPECT_EQ(identical(expand, {0}), "10");
  const Graph add = make_graph({{kF, {6, 4}}, {kF, {4}}},
                               make_op("aten::add", {value(0), value(1), {1}}), {{kF, {6, 4}}});
  EXPECT_EQ(identical(add, {0b11, 0}), "10");
  EXPECT_EQ(identical(add, {0b01, 0b1}), "10");
  EXPECT_EQ(identical(add, {0b10, 0}), "00");
  // [6, 4] as [24]: needs both dimensions.
  const Graph view =
      make_graph({{kF, {6, 4}}}, make_op("aten::view", {value(0), list({24})}), {{kF, {24}}});
  EXPECT_EQ(identical(view, {0b11}), "1");
  EXPECT_EQ(identical(view, {0b01}), "0");
  const Graph sort = make_graph({{kF, {6}}}, make_op("aten::unheard_of", {value(0)}), {{kF, {6}}});
  EXPECT_EQ(identical(sort, {0b1}), "0");
}

TEST(ShardingRule, AloneNothingIsSaidButWhichTensorsThereAre) {
  const Graph graph = make_graph({{kF, {6, 4}}, {kF, {4}}},
                                 make_op("aten::add", {value(0), value(1), {1}}), {{kF, {6, 4}}});
  const ShardingRule rule = rule_alone(graph.ops[0]);
  EXPECT_THAT(rule.operands, ElementsAre(ValueId(0), ValueId(1)));
  EXPECT_THAT(rule.factors, IsEmpty());
  EXPECT_EQ(rule.operand_factors.size(), 2U);
  EXPECT_EQ(rule.result_factors.size(), 1U);
}

}  // namespace
}  // namespace motley::graph
