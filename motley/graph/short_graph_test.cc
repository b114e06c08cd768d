#include "motley/graph/short_graph.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/graph/graph_text.h"
#include "motley/testing/golden.h"

namespace motley::graph {
namespace {

/// Makes layers w_l * x + shared and their backward pass, as autograd orders them.
Graph layers_of(int layers) {
  std::string text = "motley.graph/1\nname \"g\"\nsize batch 1 64\ninput %0: f32[batch, 4] \"x\"\n";
  const int from = layers + 1;  // value of the first operator
  for (int l = 0; l < layers; ++l) text += fmt::format("param %{}: f32[4] \"h.{}.w\"\n", l + 1, l);
  text += fmt::format("tangent %{}: f32[]\n", from);
  int value = from + 1;
  for (int l = 0; l < layers; ++l, ++value)
    text += fmt::format("op %{}: f32[batch, 4] = aten::mul.Tensor(%{}, %{}) fwd \"h.{}\"\n", value,
                        l == 0 ? 0 : value - 1, l + 1, l);
  text += fmt::format("op %{}: f32[] = aten::sum(%{}, none) fwd \"head\"\n", value, value - 1);
  const int loss = value++;
  text += fmt::format(
      "op %{}: f32[batch, 4] = aten::expand(%{}, [size(batch), 4], false) bwd \"head\"\n", value++,
      from);
  std::string outputs;
  for (int l = layers; l-- > 0; value += 3) {
    const int gradient = l + 1 == layers ? value - 1 : value - 3;
    text += fmt::format("op %{}: f32[batch, 4] = aten::mul.Tensor(%{}, %{}) bwd \"h.{}\"\n", value,
                        gradient, l + 1, l);
    text += fmt::format("op %{}: f32[batch, 4] = aten::mul.Tensor(%{}, %{}) bwd \"h.{}\"\n",
                        value + 1, gradient, l == 0 ? 0 : from + l, l);
    text +=
        fmt::format("op %{}: f32[4] = aten::sum.dim_IntList(%{}, [0], false, none) bwd \"h.{}\"\n",
                    value + 2, value + 1, l);
    outputs += fmt::format("output gradient %{} of \"h.{}.w\"\n", value + 2, l);
  }
  const auto graph = parse_graph(text + fmt::format("output loss %{}\n", loss) + outputs, "g");
  EXPECT_TRUE(graph) << graph.error().message;
  return *graph;
}

Graph renamed(Graph graph) {
  for (Value& value : graph.values) value.name.clear();
  for (Op& op : graph.ops) op.module.clear();
  return graph;
}

// The first layer reads an input, so the other five are identical. Keeping three of them gives a
// graph of four layers with other names.
TEST(ShortGraph, IsTheGraphOfFewerLayers) {
  const Graph graph = layers_of(6);
  const ShortGraph made = shorten(graph, find_layer_chain(graph), 3);
  EXPECT_EQ(made.left_out, 2u);
  Graph fewer = renamed(layers_of(4)), found = renamed(made.graph);
  EXPECT_EQ(found.values, fewer.values);
  EXPECT_EQ(found.ops, fewer.ops);
  EXPECT_EQ(found.outputs, fewer.outputs);
  EXPECT_TRUE(parse_graph(print_graph(made.graph), "short"));
}

// h.2 represents h.3 and h.4.
TEST(ShortGraph, TheLayerBeforeTheGapStandsForThoseInIt) {
  const Graph graph = layers_of(6);
  const LayerChain chain = find_layer_chain(graph);
  const ShortGraph made = shorten(graph, chain, 3);
  EXPECT_THAT(made.of_layer, ::testing::ElementsAre(0, 1, 2, 2, 2, 5, 6));
  double ops = 0;
  for (std::size_t i = 0; i < made.graph.ops.size(); ++i) {
    const OpId whole = made.whole_op[i];
    EXPECT_EQ(made.of_op[whole.index()].index(), i);
    EXPECT_EQ(made.op_count[i], chain.of_op[whole.index()] == 2 ? 3 : 1);
    ops += made.op_count[i];
  }
  EXPECT_EQ(ops, static_cast<double>(graph.ops.size()));
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    ASSERT_FALSE(made.of_value[v].is_none());
    EXPECT_EQ(made.graph.value(made.of_value[v]).shape, graph.values[v].shape);
  }
  const auto parameter = [](const Graph& of, const std::string& name) {
    for (const ValueId id : values_with_role(of, ValueRole::kParameter))
      if (of.value(id).name == name) return id;
    return ValueId();
  };
  EXPECT_EQ(made.of_value[parameter(graph, "h.3.w").index()], parameter(made.graph, "h.2.w"));
  EXPECT_EQ(made.value_count[parameter(made.graph, "h.2.w").index()], 3);
}

TEST(ShortGraph, FewLayersStay) {
  for (const Graph& graph : {layers_of(3), synth::read_graph("mlp")}) {
    const ShortGraph made = shorten(graph, find_layer_chain(graph), 3);
    EXPECT_EQ(made.left_out, 0u);
    EXPECT_EQ(made.graph, graph);
    EXPECT_EQ(made.of_op.size(), graph.ops.size());
  }
}

}  // namespace
}  // namespace motley::graph
