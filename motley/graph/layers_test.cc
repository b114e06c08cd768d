#include "motley/graph/layers.h"

#include <gmock/gmock.h>

#include "motley/base/file.h"
#include "motley/base/text.h"
#include "motley/graph/graph_text.h"
#include "motley/testing/places.h"

namespace motley::graph {
namespace {

using ::testing::ElementsAre;

/// Makes a chain of one operator per module path over one parameter.
Graph chain(const std::vector<std::string>& modules) {
  std::string text =
      "motley.graph/1\nname \"chain\"\nsize batch 1 8\ninput %0: f32[batch] \"x\"\n"
      "param %1: f32[] \"w\" frozen\n";
  for (std::size_t i = 0; i < modules.size(); ++i) {
    text += "op %" + std::to_string(i + 2) + ": f32[] = aten::f(%0, %1) fwd " + quote(modules[i]) +
            "\n";
  }
  const auto graph = parse_graph(text + "output loss %2\n", "chain");
  EXPECT_TRUE(graph) << graph.error().message;
  return *graph;
}

std::vector<std::string> paths(const std::vector<std::string>& modules) {
  std::vector<std::string> paths;
  for (const Layer& layer : find_layers(chain(modules))) {
    std::string path = layer.path + ":";
    for (const OpId op : layer.ops) path += " " + std::to_string(op.value);
    paths.push_back(path);
  }
  return paths;
}

TEST(FindLayers, TakesNumberedChildrenOfOneParent) {
  EXPECT_THAT(paths({"wte", "h.0.attn", "h.0.mlp.fc", "h.1.attn", "norm.scale", "", "h.0.attn"}),
              ElementsAre("wte: 0", "h.0: 1 2 6", "h.1: 3", "norm: 4", ": 5"));
}

TEST(FindLayers, GroupsALoneNumberedChildWithItsFirstComponent) {
  EXPECT_THAT(paths({"body.0.fc", "body.pool"}), ElementsAre("body: 0 1"));
}

TEST(FindLayers, TakesTheOutermostStack) {
  EXPECT_THAT(paths({"stage.0.block.0", "stage.0.block.1", "stage.1.block.0"}),
              ElementsAre("stage.0: 0 1", "stage.1: 2"));
  // "stage" has only one numbered child, so its blocks are the layers.
  EXPECT_THAT(paths({"stage.0.block.0", "stage.0.block.1.fc"}),
              ElementsAre("stage.0.block.0: 0", "stage.0.block.1: 1"));
}

TEST(FindLayers, TakesNumberedChildrenOfTheModelItself) {
  EXPECT_THAT(paths({"0", "1.fc", "0"}), ElementsAre("0: 0 2", "1: 1"));
}

TEST(FindLayers, GivesEachParameterToItsFirstUse) {
  const auto layers = find_layers(chain({"a", "b"}));
  EXPECT_THAT(layers[0].parameters, ElementsAre(ValueId(1)));
  EXPECT_THAT(layers[1].parameters, ElementsAre());
}

TEST(FindLayers, FindsTheBlocksOfATransformer) {
  const std::string path = testing::source_path("tests/golden/graph/gpt_dropout.txt");
  const Graph graph = *parse_graph(*read_file(path), path);
  std::size_t ops = 0;
  std::vector<std::string> found;
  for (const Layer& layer : find_layers(graph)) {
    found.push_back(layer.path);
    ops += layer.ops.size();
  }
  EXPECT_THAT(found, ElementsAre("", "wte", "wpe", "h.0", "h.1", "norm", "head"));
  EXPECT_EQ(ops, graph.ops.size());
}

}  // namespace
}  // namespace motley::graph
