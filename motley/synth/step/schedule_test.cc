#include "motley/synth/step/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "motley/graph/graph_text.h"

namespace motley::synth {
namespace {

using ::testing::ElementsAre;

/// Two layers; an operator's value has its number + 4.
std::string two_layers_text() {
  return "motley.graph/1\nname \"two\"\nsize batch 1 4096\n"
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
         "output loss %7\noutput gradient %15 of \"a\"\noutput gradient %10 of \"b\"\n";
}
graph::Graph two_layers(const std::string& text = two_layers_text()) {
  auto graph = graph::parse_graph(text, "two");
  EXPECT_TRUE(graph) << graph.error().message;
  return *std::move(graph);
}

/// Returns the values in the order in which operators make them.
std::vector<std::int64_t> order_of(const Schedule& schedule, const graph::Graph& graph) {
  std::vector<std::int64_t> values;
  for (const OpId op : schedule.order) values.push_back(graph.op(op).outputs[0].value);
  return values;
}

Schedule schedule_of(const graph::Graph& graph, std::int64_t batch, bool is_exchanged) {
  std::vector<OpNeeds> needs(graph.ops.size());
  if (is_exchanged) needs[9].exchanged = {ValueId(12)};  // between the layers, in the backward pass
  const std::vector<std::optional<Exchange>> outputs(3, Exchange::kAllReduce);
  return make_schedule(graph, {{"batch", batch}}, needs, outputs, {Bytes(1)});
}

TEST(Schedule, GradientsOfParametersHideAnExchange) {
  const graph::Graph graph = two_layers();
  EXPECT_THAT(order_of(schedule_of(graph, 4096, false), graph),
              ElementsAre(4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  const Schedule schedule = schedule_of(graph, 4096, true);
  EXPECT_THAT(order_of(schedule, graph), ElementsAre(4, 5, 8, 11, 12, 6, 7, 9, 10, 13, 14, 15));
  // The loss and the gradient of b, now later, are exchanged when they are ready.
  std::vector<std::int64_t> ready;
  for (const Bucket& bucket : schedule.buckets) ready.push_back(bucket.ready);
  EXPECT_THAT(ready, ElementsAre(6, 8, 11));
}

TEST(Schedule, ASmallExchangePutsOffLittle) {
  const graph::Graph graph = two_layers();
  const std::vector<std::int64_t> order = order_of(schedule_of(graph, 1, true), graph);
  // 256 of 33,024 bytes: only the last arithmetic operator is delayed.
  EXPECT_THAT(order, ElementsAre(4, 5, 6, 7, 8, 9, 11, 12, 10, 13, 14, 15));
}

// Operators 0 to 3 are the forward pass, a task, 4 to 11 the backward pass. There only the gradient
// of b (9, 10) is delayed; the loss and values that others wait for keep their places.
TEST(Schedule, InALargerStepOperatorsKeepTheirTask) {
  std::string text = two_layers_text();
  // As in a step of micro-batches, where sizes are numbers.
  for (const auto& [of, by] : std::vector<std::pair<std::string, std::string>>{
           {"size(batch)", "16"}, {"batch,", "16,"}, {"batch]", "16]"}, {"input", "buffer"}})
    for (std::size_t at; (at = text.find(of)) != std::string::npos;)
      text.replace(at, of.size(), by);
  const graph::Graph graph = two_layers(text);
  std::vector<OpNeeds> needs(graph.ops.size());
  needs[9].exchanged = {ValueId(12)};
  const std::vector<std::optional<Exchange>> outputs(3);
  const std::vector<OpStretch> tasks = {{0, 4}, {4, 12}};
  const auto flops = [](OpId) { return 1.0; };
  const auto order = [&](std::vector<ValueId> given) {
    return order_of(keep_order(graph, needs, outputs, Bytes(1), {&tasks, std::move(given), flops}),
                    graph);
  };
  EXPECT_THAT(order({}), ElementsAre(4, 5, 6, 7, 8, 11, 12, 9, 10, 13, 14, 15));
  EXPECT_THAT(order({ValueId(9)}), ElementsAre(4, 5, 6, 7, 8, 9, 11, 12, 10, 13, 14, 15));
}

/// Buckets as text: "0+1@3" is outputs 0 and 1, ready after position 3.
std::vector<std::string> texts_of(const std::vector<Bucket>& buckets) {
  std::vector<std::string> texts;
  for (const Bucket& bucket : buckets) {
    std::string& text = texts.emplace_back();
    for (const BucketItem& item : bucket.items)
      text += (text.empty() ? "" : "+") +
              (item.output == BucketItem::kStop ? "stop" : std::to_string(item.output));
    text += "@" + std::to_string(bucket.ready);
  }
  return texts;
}

/// Parameters a and b of 16 bytes, c of 40, h of 8 in half precision: %0 to %3.
graph::Graph four_parameters() {
  auto graph = graph::parse_graph(
      "motley.graph/1\nname \"p\"\nsize batch 1 64\nparam %0: f32[4] \"a\"\nparam %1: f32[2, 2] "
      "\"b\"\n"
      "param %2: f32[10] \"c\"\nparam %3: bf16[4] \"h\"\n"
      "op %4: f32[] = aten::sum(%0, none) fwd \"\"\noutput loss %4\n",
      "p");
  EXPECT_TRUE(graph) << graph.error().message;
  return *std::move(graph);
}

ReadyItem item(std::int64_t value, std::int64_t ready, Exchange exchange = Exchange::kAllReduce) {
  return {ready, exchange, {value, ValueId(value)}};
}

TEST(FillBuckets, ABucketIsFullBeforeItIsTooLarge) {
  const graph::Graph graph = four_parameters();
  const std::vector<ReadyItem> items = {item(0, 1), item(1, 2), item(2, 5)};
  EXPECT_THAT(texts_of(fill_buckets(graph, items, Bytes(72))), ElementsAre("0+1+2@5"));
  EXPECT_THAT(texts_of(fill_buckets(graph, items, Bytes(71))), ElementsAre("0+1@2", "2@5"));
  EXPECT_THAT(texts_of(fill_buckets(graph, items, Bytes(32))), ElementsAre("0+1@2", "2@5"));
  EXPECT_THAT(texts_of(fill_buckets(graph, items, Bytes(31))), ElementsAre("0@1", "1@2", "2@5"));
}

// Other dtypes and exchanges get their own buckets. The stop request is f32 and takes no space.
TEST(FillBuckets, OneDtypeAndExchangeEach) {
  const graph::Graph graph = four_parameters();
  const std::vector<ReadyItem> items = {
      {}, item(0, 4), item(3, 1), item(2, 2, Exchange::kReduceScatter), item(1, 3)};
  const std::vector<Bucket> buckets = fill_buckets(graph, items, Bytes(32));
  EXPECT_THAT(texts_of(buckets), ElementsAre("3@1", "2@2", "stop+0+1@4"));
  EXPECT_EQ(buckets[0].dtype, DType::kBF16);
  EXPECT_EQ(buckets[1].exchange, Exchange::kReduceScatter);
  EXPECT_EQ(buckets[2].dtype, DType::kF32);
}

/// The sum of x's columns (%3) is multiplied with them (%5), after a product (%2) that does not
/// need it; %7 is not needed.
graph::Graph scaled_by_sums() {
  auto graph = graph::parse_graph(
      "motley.graph/1\nname \"e\"\nsize batch 1 64\ninput %0: f32[batch, 4] \"x\"\n"
      "param %1: f32[4, 4] \"w\"\n"
      "op %2: f32[batch, 4] = aten::mm(%0, %1) fwd \"\"\n"
      "op %3: f32[4] = aten::sum.dim_IntList(%0, [0], false, none) fwd \"\"\n"
      "op %4: f32[4] = aten::exp(%3) fwd \"\"\n"
      "op %5: f32[batch, 4] = aten::mul.Tensor(%2, %4) fwd \"\"\n"
      "op %6: f32[] = aten::sum(%5, none) fwd \"\"\n"
      "op %7: f32[] = aten::neg(%6) fwd \"\"\n"
      "output loss %6\noutput extra %7\n",
      "e");
  EXPECT_TRUE(graph) << graph.error().message;
  return *std::move(graph);
}

std::vector<OpNeeds> sums_of_inputs(const graph::Graph& graph) {
  std::vector<OpNeeds> needs(graph.ops.size());
  needs[2].summed = needs[2].exchanged = {ValueId(3)};
  return needs;
}

TEST(Schedule, SumsOfInputsGoFirst) {
  const graph::Graph graph = scaled_by_sums();
  const Schedule schedule = make_schedule(graph, {{"batch", 8}}, sums_of_inputs(graph),
                                          {Exchange::kAllReduce, std::nullopt}, {Bytes(1)});
  EXPECT_THAT(order_of(schedule, graph), ElementsAre(3, 2, 4, 5, 6));
  EXPECT_EQ(schedule.early, 1u);
  EXPECT_TRUE(schedule.summed[3] != 0);
  EXPECT_TRUE(schedule.summed[6] == 0);
}

TEST(Schedule, SumsOfActivationsDoNotGoFirst) {
  const graph::Graph graph = scaled_by_sums();
  std::vector<OpNeeds> needs(graph.ops.size());
  needs[4].summed = {ValueId(5)};
  const Schedule schedule =
      make_schedule(graph, {{"batch", 8}}, needs, {std::nullopt, std::nullopt}, {Bytes(1)});
  EXPECT_THAT(order_of(schedule, graph), ElementsAre(2, 3, 4, 5, 6));
  EXPECT_EQ(schedule.early, 0u);
  EXPECT_THAT(schedule.direct, ElementsAre(0));
}

// Only a dense result in its own memory that only sums read may be overwritten: not the columns'
// sum, which may have gaps; a scalar; a scalar that is also an output.
TEST(Schedule, ASumMayOverwriteWhatNobodyElseReads) {
  auto graph = graph::parse_graph(
      "motley.graph/1\nname \"i\"\nsize batch 1 64\ninput %0: f32[batch, 4] \"x\"\n"
      "op %1: f32[4] = aten::sum.dim_IntList(%0, [0], false, none) fwd \"\"\n"
      "op %2: f32[] = aten::sum(%0, none) fwd \"\"\n"
      "op %3: f32[] = aten::sum(%0, none) fwd \"\"\n"
      "op %4: f32[] = aten::exp(%2) fwd \"\"\n"
      "op %5: f32[4] = aten::mul.Tensor(%1, %4) fwd \"\"\n"
      "op %6: f32[4] = aten::mul.Tensor(%5, %3) fwd \"\"\n"
      "op %7: f32[] = aten::sum(%6, none) fwd \"\"\n"
      "op %8: f32[] = aten::add.Tensor(%7, %3, 1) fwd \"\"\n"
      "output loss %8\n",
      "i");
  ASSERT_TRUE(graph) << graph.error().message;
  std::vector<OpNeeds> needs(graph->ops.size());
  needs[3].summed = {ValueId(2)};
  needs[4].summed = {ValueId(1)};
  needs[5].summed = {ValueId(3)};
  const auto in_place = [&] {
    const std::vector<std::optional<Exchange>> outputs(graph->outputs.size());
    return make_schedule(*graph, {{"batch", 8}}, needs, outputs, {Bytes(1)}).in_place;
  };
  const std::vector<char> found = in_place();
  EXPECT_TRUE(found[1] == 0);
  EXPECT_TRUE(found[2] != 0);
  EXPECT_TRUE(found[3] == 0);  // the last operator reads the term
  needs[7].summed = {ValueId(3)};
  EXPECT_TRUE(in_place()[3] != 0);
  graph->outputs.push_back({graph::OutputKind::kUpdate, ValueId(3), ValueId(0), {}});
  EXPECT_TRUE(in_place()[3] == 0);
}

TEST(Schedule, AWishToStopThatTravelsAloneGoesLast) {
  const graph::Graph graph = scaled_by_sums();
  const std::vector<OpNeeds> needs(graph.ops.size());
  const Schedule with_loss =
      make_schedule(graph, {{"batch", 8}}, needs, {Exchange::kAllReduce, std::nullopt}, {Bytes(1)});
  EXPECT_THAT(texts_of(with_loss.buckets), ElementsAre("stop+0@4"));
  const Schedule alone = make_schedule(graph, {{"batch", 8}}, needs,
                                       {Exchange::kReduceScatter, std::nullopt}, {Bytes(1)});
  EXPECT_THAT(texts_of(alone.buckets), ElementsAre("stop@4", "0@4"));
}

TEST(Schedule, OfOneDeviceIsTheGraphsOrder) {
  const graph::Graph graph = scaled_by_sums();
  const Schedule schedule = schedule_alone(graph);
  EXPECT_THAT(order_of(schedule, graph), ElementsAre(2, 3, 4, 5, 6));
  EXPECT_EQ(schedule.early, 0u);
  EXPECT_THAT(schedule.direct, ElementsAre(0));
  EXPECT_TRUE(schedule.buckets.empty());
}

/// A mean loss over labels %1; class weights are a parameter or a constant.
graph::Graph mean_loss(const std::string& weights) {
  auto graph = graph::parse_graph(
      "motley.graph/1\nname \"m\"\nsize batch 1 64\ninput %0: f32[batch, 4] \"x\"\n"
      "input %1: i64[batch] \"y\"\n" +
          weights +
          "op %3: f32[batch, 4] = aten::_log_softmax(%0, 1, false) fwd \"\"\n"
          "op %4: f32[], %5: f32[] = aten::nll_loss_forward(%3, %1, %2, 1, -100) fwd \"\"\n"
          "output loss %4\n",
      "m");
  EXPECT_TRUE(graph) << graph.error().message;
  return *std::move(graph);
}

TEST(Schedule, LabelsAreCountedFirstWhereInputsSayThemAll) {
  const auto counts = [](const graph::Graph& graph) {
    std::vector<OpNeeds> needs(graph.ops.size());
    needs[1].counts_labels = true;
    return make_schedule(graph, {{"batch", 8}}, needs, {Exchange::kAllReduce}, {Bytes(1)})
        .early_counts;
  };
  EXPECT_THAT(counts(mean_loss("constant %2: f32[4] \"c\"\n")), ElementsAre(OpId(1)));
  EXPECT_THAT(counts(mean_loss("param %2: f32[4] \"c\"\n")), ElementsAre());
}

}  // namespace
}  // namespace motley::synth
