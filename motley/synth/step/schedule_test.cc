#include "motley/synth/step/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "motley/graph/graph_text.h"

namespace motley::synth {
namespace {

using ::testing::ElementsAre;

/// Two layers; values are numbered as operators + 4.
graph::Graph two_layers() {
  auto graph = graph::parse_graph(
      "motley.graph/1\nname \"two\"\nsize batch 1 4096\n"
      "input %0: f32[batch, 64] \"x\"\nparam %1: f32[64, 64] \"a\"\n"
      "param %2: f32[64, 64] \"b\"\ntangent %3: f32[]\n"
      "op %4: f32[batch, 64] = aten::mm(%0, %1) fwd \"first\"\n"
      "op %5: f32[batch, 64] = aten::relu(%4) fwd \"first\"\n"
      "op %6: f32[batch, 64] = aten::mm(%5, %2) fwd \"second\"\n"
      "op %7: f32[] = aten::sum(%6, none) fwd \"\"\n"
      "op %8: f32[batch, 64] = aten::expand(%3, [size(batch), 64], false) bwd \"\"\n"
      "op %9: f32[64, batch] = aten::t(%5) bwd \"second\"\n"
      "op %10: f32[64, 64] = aten::mm(%9, %8) bwd \"second\"\n"
      "op %11: f32[64, 64] = aten::t(%2) bwd \"second\"\n"
      "op %12: f32[batch, 64] = aten::mm(%8, %11) bwd \"second\"\n"
      "op %13: f32[batch, 64] = aten::threshold_backward(%12, %5, 0) bwd \"first\"\n"
      "op %14: f32[64, batch] = aten::t(%0) bwd \"first\"\n"
      "op %15: f32[64, 64] = aten::mm(%14, %13) bwd \"first\"\n"
      "output loss %7\noutput gradient %15 of \"a\"\noutput gradient %10 of \"b\"\n",
      "two");
  EXPECT_TRUE(graph) << graph.error().message;
  return *std::move(graph);
}

/// The values that operators make, in the schedule's order.
std::vector<std::int64_t> order_of(const Schedule& schedule, const graph::Graph& graph) {
  std::vector<std::int64_t> values;
  for (const OpId op : schedule.order) values.push_back(graph.op(op).outputs[0].value);
  return values;
}

Schedule schedule_of(const graph::Graph& graph, std::int64_t batch, bool is_exchanged) {
  std::vector<OpNeeds> needs(graph.ops.size());
  if (is_exchanged) needs[9].exchanged = {ValueId(12)};  // between the layers, backwards
  const std::vector<std::optional<Exchange>> outputs(3, Exchange::kAllReduce);
  return make_schedule(graph, {{"batch", batch}}, needs, outputs, Bytes(1));
}

TEST(Schedule, GradientsOfParametersHideAnExchange) {
  const graph::Graph graph = two_layers();
  EXPECT_THAT(order_of(schedule_of(graph, 4096, false), graph),
              ElementsAre(4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  const Schedule schedule = schedule_of(graph, 4096, true);
  EXPECT_THAT(order_of(schedule, graph), ElementsAre(4, 5, 8, 11, 12, 6, 7, 9, 10, 13, 14, 15));
  // The loss and the gradient of b, which are now later, leave when they are there.
  std::vector<std::int64_t> ready;
  for (const Bucket& bucket : schedule.buckets) ready.push_back(bucket.ready);
  EXPECT_THAT(ready, ElementsAre(6, 8, 11));
}

TEST(Schedule, ASmallExchangePutsOffLittle) {
  const graph::Graph graph = two_layers();
  const std::vector<std::int64_t> order = order_of(schedule_of(graph, 1, true), graph);
  // 256 of 33,024 bytes: one operator that does arithmetic, the last.
  EXPECT_THAT(order, ElementsAre(4, 5, 6, 7, 8, 9, 11, 12, 10, 13, 14, 15));
}

}  // namespace
}  // namespace motley::synth
