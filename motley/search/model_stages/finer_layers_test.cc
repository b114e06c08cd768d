#include "motley/search/model_stages/finer_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "motley/graph/graph_text.h"
#include "motley/testing/golden.h"

namespace motley::search {
namespace {

using ::testing::ElementsAre;

FinerLayers refine(const graph::Graph& graph, std::size_t kept, double piece) {
  const graph::LayerChain chain = graph::find_layer_chain(graph);
  const graph::ShortGraph shown = graph::shorten(graph, chain, kept);
  std::vector<double> seconds;
  for (const graph::Op& op : graph.ops)
    seconds.push_back(op.direction == graph::Direction::kForward ? 1 : 0);
  return find_finer_layers({graph, chain, shown, seconds, piece, 1});
}

/// A layer whose values are 4, 16, 16, 1 and 4 wide; the last one scaled by `last`.
graph::Graph make_layer(const std::string& last) {
  return graph::parse_graph(
             "motley.graph/1\nname \"g\"\nsize batch 1 64\ninput %0: f32[batch, 4] \"x\"\n"
             "param %1: f32[4] \"h.scale\"\nparam %2: f32[4] \"h.out\"\n"
             "op %3: f32[batch, 4] = aten::mul.Tensor(%0, %1) fwd \"h.scale\" seq 1\n"
             "op %4: f32[batch, 16] = aten::repeat(%3, [1, 4]) fwd \"h\" seq 2\n"
             "op %5: f32[batch, 16] = aten::relu(%4) fwd \"h.act\" seq 3\n"
             "op %6: f32[batch, 1] = aten::mean.dim(%5, [-1], true, none) fwd \"h\" seq 4\n"
             "op %7: f32[batch, 4] = aten::mul.Tensor(%6, " +
                 last +
                 ") fwd \"h.out\" seq 5\n"
                 "op %8: f32[] = aten::sum(%7, none) fwd \"t\" seq 6\n"
                 "op %9: f32[batch, 4] = aten::neg(%7) bwd \"h.out\" seq 5\n"
                 "op %10: f32[batch, 16] = aten::mul.Tensor(%9, %5) bwd \"h.act\" seq 3\n"
                 "op %11: f32[batch, 4] = aten::mul.Tensor(%10, %1) bwd \"h.scale\" seq 1\n"
                 "output loss %8\n",
             "g")
      .value();
}

TEST(FinerLayers, CutsLieWhereLittlePasses) {
  const FinerLayers made = refine(make_layer("%2"), 9, 1.7);
  EXPECT_THAT(made.first, ElementsAre(0, 3, 4));
  EXPECT_THAT(made.pieces.of_op, ElementsAre(0, 1, 1, 1, 2, 3, 2, 1, 0));
  EXPECT_THAT(made.pieces.names, ElementsAre("h", "h", "h", "t"));
  EXPECT_EQ(made.name_first(0), "h");
  EXPECT_EQ(made.name_last(0), "h (through aten::mul of scale)");
  EXPECT_EQ(made.name_first(1), "h (after aten::mul of scale)");
  EXPECT_EQ(made.name_last(1), "h (through aten::mean)");
  EXPECT_EQ(made.name_last(2), "h");
  EXPECT_THAT(made.parts(1, 4), ElementsAre(std::pair(1, 3), std::pair(3, 4)));
}

TEST(FinerLayers, AParameterIsReadOnOneSideOfACut) {
  EXPECT_THAT(refine(make_layer("%1"), 9, 1.7).first, ElementsAre(0, 1, 2));
}

// Every operator is in a piece of its layer, reads what is made before it, gradients of what is
// behind; no parameter is in two pieces of a layer. Layers that are identical are cut alike, and as
// they are if a few of them are looked at.
TEST(FinerLayers, PiecesOfModelsAreChains) {
  for (const std::string name : {"gpt", "mlp"}) {
    const graph::Graph graph = synth::read_graph(name);
    const graph::LayerChain chain = graph::find_layer_chain(graph);
    const FinerLayers made = refine(graph, 99, 3);
    EXPECT_GT(made.pieces.names.size(), chain.names.size()) << name;
    std::map<std::pair<ValueId, std::size_t>, std::set<std::size_t>> readers;  // pieces, by layer
    for (std::size_t i = 0; i < graph.ops.size(); ++i) {
      const std::size_t piece = made.pieces.of_op[i], layer = chain.of_op[i];
      EXPECT_LE(made.first[layer], piece);
      EXPECT_LT(piece, made.first[layer + 1]);
      const bool is_forward = graph.ops[i].direction == graph::Direction::kForward;
      graph::for_each_value(graph.ops[i].arguments, [&](ValueId value) {
        const graph::Value& about = graph.value(value);
        if (about.role == graph::ValueRole::kParameter) readers[{value, layer}].insert(piece);
        if (about.producer.is_none()) return;
        const std::size_t by = made.pieces.of_op[about.producer.index()];
        if (is_forward) {
          EXPECT_LE(by, piece) << name << " " << i;
        } else if (graph.op(about.producer).direction == graph::Direction::kBackward) {
          EXPECT_GE(by, piece) << name << " " << i;
        }
      });
    }
    for (const auto& [parameter, pieces] : readers) EXPECT_EQ(pieces.size(), 1u) << name;
    for (std::size_t piece = 0; piece < made.stand.size(); ++piece)
      EXPECT_EQ(made.stand[piece], piece);
  }
}

}  // namespace
}  // namespace motley::search
