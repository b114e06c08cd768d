#include "motley/graph/layer_chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/testing/golden.h"

namespace motley::graph {
namespace {

TEST(LayerChain, LayersInTheOrderOfTheForwardPass) {
  const LayerChain chain = find_layer_chain(synth::read_graph("mlp"));
  EXPECT_THAT(chain.names,
              ::testing::ElementsAre("net.0", "net.1", "net.2", "net.3", "net.4", "net.5"));
}

// What makes it a chain: the forward pass reads from its own layer and those before, and gradients
// come from its own and those behind.
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

}  // namespace
}  // namespace motley::graph
