#include "motley/search/model_stages/tied_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "motley/graph/layer_chain.h"
#include "motley/testing/golden.h"

namespace motley::search {
namespace {

plan::Plan two_stages(const graph::Graph& graph, std::size_t cut) {
  const graph::LayerChain chain = graph::find_layer_chain(graph);
  plan::Plan plan;
  plan.replicas = {{4, {{{DeviceId(0)}, {1.0}}, {{DeviceId(1)}, {1.0}}}, 2}};
  for (std::size_t i = 0; i < chain.of_op.size(); ++i)
    plan::append(plan.replicas[0].regions[chain.of_op[i] < cut ? 0 : 1].covers,
                 static_cast<std::int64_t>(i));
  return plan;
}

std::vector<std::string> more_of(const graph::Graph& graph, const plan::Region& region,
                                 const plan::Region& other) {
  std::vector<std::string> names;
  for (const plan::OpRange& range : region.covers)
    for (std::int64_t op = range.first; op < range.end; ++op)
      if (std::none_of(other.covers.begin(), other.covers.end(), [&](const plan::OpRange& each) {
            return each.first <= op && op < each.end;
          }))
        names.push_back(graph.op(OpId(op)).name);
  return names;
}

// Embedding and head share a weight, which the head reads as a view.
TEST(TiedWeights, TheFirstStageMakesWhatTheLastReads) {
  const graph::Graph graph = synth::read_graph("gpt");
  const plan::Plan plan = two_stages(graph, 2);
  const plan::Plan given = give_tied_weights(graph, plan);
  const std::vector<plan::Region>& before = plan.replicas[0].regions;
  const std::vector<plan::Region>& after = given.replicas[0].regions;
  EXPECT_EQ(more_of(graph, after[0], before[0]), std::vector<std::string>{"aten::t"});
  EXPECT_EQ(more_of(graph, before[1], after[1]), std::vector<std::string>{"aten::t"});
  EXPECT_EQ(give_tied_weights(graph, given), given);
}

// Each operator has its split, in graph order; only the first stage keeps part of the weight.
TEST(TiedWeights, SplitsGoAlong) {
  const graph::Graph graph = synth::read_graph("gpt");
  plan::Plan plan = two_stages(graph, 2);
  std::int64_t device = 0;
  for (plan::Region& region : plan.replicas[0].regions) {
    region.devices = {DeviceId(device), DeviceId(device + 1)};
    region.shares = {1, 1};
    device += 2;
    for (const plan::OpRange& range : region.covers)
      for (std::int64_t op = range.first; op < range.end; ++op)
        region.operators.push_back({static_cast<int>(op)});
    region.parameters = {{"wte.weight", {graph::FormKind::kSharded, 0, 1, 61, 1}}};
    region.recomputes = region.covers;
  }
  const plan::Plan given = give_tied_weights(graph, plan);
  for (const plan::Region& region : given.replicas[0].regions) {
    std::vector<plan::OperatorSplit> wanted;
    for (const plan::OpRange& range : region.covers)
      for (std::int64_t op = range.first; op < range.end; ++op)
        wanted.push_back({static_cast<int>(op)});
    EXPECT_EQ(region.operators, wanted);
  }
  EXPECT_EQ(given.replicas[0].regions[0].parameters.size(), 1u);
  EXPECT_TRUE(given.replicas[0].regions[1].parameters.empty());
  EXPECT_EQ(given.replicas[0].regions[1].recomputes, given.replicas[0].regions[1].covers);
}

TEST(TiedWeights, WeightsOfOneStageStay) {
  const graph::Graph graph = synth::read_graph("mlp");
  const plan::Plan plan = two_stages(graph, 3);
  EXPECT_EQ(give_tied_weights(graph, plan), plan);
}

}  // namespace
}  // namespace motley::search
