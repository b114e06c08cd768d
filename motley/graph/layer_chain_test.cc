#include "motley/graph/layer_chain.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/graph/graph_text.h"
#include "motley/testing/golden.h"

namespace motley::graph {
namespace {

LayerChain chain_of(const std::string& text) {
  const auto graph = parse_graph(text, "g");
  EXPECT_TRUE(graph) << graph.error().message;
  return graph ? find_layer_chain(*graph) : LayerChain();
}

TEST(LayerChain, LayersInTheOrderOfTheForwardPass) {
  const LayerChain chain = find_layer_chain(synth::read_graph("mlp"));
  EXPECT_THAT(chain.names,
              ::testing::ElementsAre("net.0", "net.1", "net.2", "net.3", "net.4", "net.5"));
}

// The forward pass reads from its own and earlier layers, gradients come from own and later ones.
TEST(LayerChain, NothingReadsAgainstTheChain) {
  for (const char* name : {"mlp", "gpt"}) {
    SCOPED_TRACE(name);
    const Graph graph = synth::read_graph(name);
    const LayerChain chain = find_layer_chain(graph);
    ASSERT_EQ(chain.of_op.size(), graph.ops.size());
    for (std::size_t i = 0; i < graph.ops.size(); ++i) {
      ASSERT_LT(chain.of_op[i], chain.names.size());
      const bool is_forward = graph.ops[i].direction == Direction::kForward;
      for_each_value(graph.ops[i].arguments, [&](ValueId value) {
        const OpId producer = graph.value(value).producer;
        if (producer.is_none() ||
            (graph.op(producer).direction == Direction::kForward) != is_forward)
          return;
        if (is_forward)
          EXPECT_LE(chain.of_op[producer.index()], chain.of_op[i]);
        else
          EXPECT_GE(chain.of_op[producer.index()], chain.of_op[i]);
      });
    }
  }
}

// Embedding and head beside the blocks are separate layers; the head's gradients come first.
TEST(LayerChain, WhatIsBesideTheBlocksIsApart) {
  const char* const text =
      "motley.graph/1\nname \"g\"\nsize batch 1 64\ninput %0: f32[batch, 4] \"x\"\n"
      "op %1: f32[batch, 4] = aten::relu(%0) fwd \"model.embed\"\n"
      "op %2: f32[batch, 4] = aten::relu(%1) fwd \"model.layers.0\"\n"
      "op %3: f32[batch, 4] = aten::relu(%2) fwd \"model.layers.1\"\n"
      "op %4: f32[batch, 4] = aten::relu(%3) fwd \"model.head\"\n"
      "op %5: f32[] = aten::sum(%4, none) fwd \"\"\n"
      "op %6: f32[batch, 4] = aten::neg(%4) bwd \"model.head\"\n"
      "op %7: f32[batch, 4] = aten::neg(%6) bwd \"model.layers.1\"\n"
      "op %8: f32[batch, 4] = aten::neg(%7) bwd \"model.embed\"\noutput loss %5\n";
  const LayerChain chain = chain_of(text);
  EXPECT_THAT(chain.names, ::testing::ElementsAre("model.embed", "model.layers.0", "model.layers.1",
                                                  "model.head"));
  EXPECT_THAT(chain.of_op, ::testing::ElementsAre(0, 1, 2, 3, 3, 3, 2, 0));
}

// Only parameters give the layers. The norm before the next layer's scale is in that layer and
// gradients are summed where they are made, so one tensor goes each way.
TEST(LayerChain, LayersGiveEachOtherOneTensor) {
  const char* const text =
      "motley.graph/1\nname \"g\"\nsize batch 1 64\ninput %0: f32[batch, 4] \"x\"\n"
      "param %1: f32[4] \"layers.0.scale\"\nparam %2: f32[4] \"layers.1.scale\"\n"
      "op %3: f32[batch, 4] = aten::mul.Tensor(%0, %1) fwd \"\" seq 1\n"
      "op %4: f32[batch, 4] = aten::pow.Tensor_Scalar(%3, 2) fwd \"\" seq 2\n"
      "op %5: f32[batch, 1] = aten::mean.dim(%4, [-1], true, none) fwd \"\" seq 3\n"
      "op %6: f32[batch, 4] = aten::mul.Tensor(%3, %5) fwd \"\" seq 4\n"
      "op %7: f32[batch, 4] = aten::mul.Tensor(%6, %2) fwd \"\" seq 5\n"
      "op %8: f32[batch, 4] = aten::add.Tensor(%7, %3, 1) fwd \"\" seq 6\n"
      "op %9: f32[] = aten::sum(%8, none) fwd \"\" seq 7\n"
      "op %10: f32[batch, 4] = aten::neg(%8) bwd \"\" seq 6\n"
      "op %11: f32[batch, 4] = aten::mul.Tensor(%10, %2) bwd \"\" seq 5\n"
      "op %12: f32[batch, 4] = aten::mul.Tensor(%11, %5) bwd \"\" seq 4\n"
      "op %13: f32[batch, 4] = aten::add.Tensor(%10, %12, 1) bwd \"\"\n"
      "op %14: f32[batch, 4] = aten::mul.Tensor(%13, %1) bwd \"\" seq 1\noutput loss %9\n";
  const LayerChain chain = chain_of(text);
  EXPECT_THAT(chain.of_op, ::testing::ElementsAre(0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0));
}

// Under autocast the graph knows only the outermost module; parameter names are more precise.
TEST(LayerChain, ParametersSayWhatModulesDoNot) {
  const char* const text =
      "motley.graph/1\nname \"g\"\nsize batch 1 64\ninput %0: f32[batch, 4] \"x\"\n"
      "param %1: f32[4] \"loss.net.h.0.w.weight\"\nparam %2: f32[4] \"loss.net.h.1.w.weight\"\n"
      "op %3: f32[batch, 4] = aten::mul.Tensor(%0, %1) fwd \"loss\"\n"
      "op %4: f32[batch, 4] = aten::relu(%3) fwd \"loss\"\n"
      "op %5: f32[batch, 4] = aten::mul.Tensor(%4, %2) fwd \"loss\"\n"
      "op %6: f32[] = aten::sum(%5, none) fwd \"loss\"\noutput loss %6\n";
  const LayerChain chain = chain_of(text);
  EXPECT_THAT(chain.names, ::testing::ElementsAre("loss.net.h.0", "loss.net.h.1"));
  EXPECT_THAT(chain.of_op, ::testing::ElementsAre(0, 0, 1, 1));
}

// The embedding's weight, cast for the head: the cast and its gradient belong to the head.
TEST(LayerChain, WhatALayerMakesOfATiedWeightIsItsOwn) {
  const char* const text =
      "motley.graph/1\nname \"g\"\nsize batch 1 64\ninput %0: f32[batch, 4] \"x\"\n"
      "param %1: f32[4] \"net.wte.weight\"\nparam %2: f32[4] \"net.h.1.w.weight\"\n"
      "op %3: f32[batch, 4] = aten::mul.Tensor(%0, %1) fwd \"\" seq 0\n"
      "op %4: f32[batch, 4] = aten::mul.Tensor(%3, %2) fwd \"\" seq 1\n"
      "op %5: bf16[4] = aten::_to_copy(%1, dtype(bf16), none, none, none, false, none) fwd \"\" "
      "seq 2\n"
      "op %6: f32[batch, 4] = aten::mul.Tensor(%4, %5) fwd \"\" seq 3\n"
      "op %7: f32[] = aten::sum(%6, none) fwd \"\" seq 4\n"
      "op %8: f32[4] = aten::_to_copy(%5, dtype(f32), none, none, none, false, none) bwd \"\" seq "
      "2\n"
      "output loss %7\n";
  const LayerChain chain = chain_of(text);
  EXPECT_THAT(chain.names, ::testing::ElementsAre("net.wte", "net.h.1"));
  EXPECT_THAT(chain.of_op, ::testing::ElementsAre(0, 1, 1, 1, 1, 1));
}

// An encoder's result, cast for each of three later layers and seen as rows there: it passes on
// once with 16 bytes per sample, not as casts of 24.
TEST(LayerChain, WhatManyLayersCastPassesOnAsItIs) {
  std::string text =
      "motley.graph/1\nname \"g\"\nsize batch 1 64\ninput %0: f32[batch, 4] \"x\"\n"
      "param %1: f32[4] \"net.0.weight\"\n";
  for (const int layer : {1, 2, 3})
    text += fmt::format("param %{0}: bf16[4] \"net.{1}.weight\"\n", layer + 1, layer);
  text += "op %5: f32[batch, 4] = aten::mul.Tensor(%0, %1) fwd \"\"\n";
  for (const int layer : {1, 2, 3})
    text += fmt::format(
        "op %{0}: bf16[batch, 4] = aten::_to_copy(%5, dtype(bf16), none, none, none, false, none) "
        "fwd \"\"\nop %{1}: bf16[batch, 4] = aten::view(%{0}, [size(batch), 4]) fwd \"\"\n"
        "op %{2}: bf16[batch, 4] = aten::mul.Tensor(%{1}, %{3}) fwd \"\"\n",
        3 * layer + 3, 3 * layer + 4, 3 * layer + 5, layer + 1);
  text +=
      "op %15: bf16[batch, 4] = aten::add.Tensor(%8, %11, 1) fwd \"\"\n"
      "op %16: bf16[batch, 4] = aten::add.Tensor(%15, %14, 1) fwd \"\"\n"
      "op %17: bf16[] = aten::sum(%16, none) fwd \"\"\noutput loss %17\n";
  EXPECT_THAT(chain_of(text).of_op, ::testing::ElementsAre(0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 2, 3, 3));
}

// A later sum reads the first layer's result, so its casts for two products are made there too. A
// cast of a value without other readers is made before sending, where it halves the bytes.
TEST(LayerChain, LittlePassesBetweenLayers) {
  const std::string cast =
      " = aten::_to_copy(%3, dtype(bf16), none, none, none, false, none) fwd \"\"\n";
  const std::string begin =
      "motley.graph/1\nname \"g\"\nsize batch 1 64\ninput %0: f32[batch, 4] \"x\"\n"
      "param %1: f32[4] \"net.0.weight\"\nparam %2: bf16[4, 4] \"net.1.weight\"\n"
      "op %3: f32[batch, 4] = aten::mul.Tensor(%0, %1) fwd \"\"\n"
      "op %4: bf16[batch, 4]" +
      cast;
  const auto sum =
      parse_graph(begin + "op %5: bf16[batch, 4]" + cast +
                      "op %6: bf16[batch, 4] = aten::mm(%4, %2) fwd \"\"\n"
                      "op %7: bf16[batch, 4] = aten::mm(%5, %2) fwd \"\"\n"
                      "op %8: bf16[batch, 4] = aten::mul.Tensor(%6, %7) fwd \"\"\n"
                      "op %9: f32[batch, 4] = aten::add.Tensor(%3, %8, 1) fwd \"\"\n"
                      "op %10: f32[] = aten::sum(%9, none) fwd \"\"\noutput loss %10\n",
                  "g");
  ASSERT_TRUE(sum) << sum.error().message;
  EXPECT_THAT(find_layer_chain(*sum).of_op, ::testing::ElementsAre(0, 1, 1, 1, 1, 1, 1, 1));
  const auto alone =
      parse_graph(begin +
                      "op %5: bf16[batch, 4] = aten::mm(%4, %2) fwd \"\"\n"
                      "op %6: bf16[] = aten::sum(%5, none) fwd \"\"\noutput loss %6\n",
                  "g");
  ASSERT_TRUE(alone) << alone.error().message;
  EXPECT_THAT(find_layer_chain(*alone).of_op, ::testing::ElementsAre(0, 0, 1, 1));
}

}  // namespace
}  // namespace motley::graph
