#include "motley/synth/step/sharded_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/testing/split_operator.h"

namespace motley::synth {
namespace {

using graph::Form;
using graph::FormKind;
using graph::kPartialForm;
using graph::kWholeForm;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const Form kRowsOf6{FormKind::kSharded, 0, 1, 6, 1};
const Form kPairsOf6{FormKind::kSharded, 0, 1, 3, 2};
const Form kStrandsOf6{FormKind::kSharded, 0, 2, 3, 1};

TEST(ShardedStep, IdenticalElementsMayBeCutInAnyWayThatGivesAsMany) {
  const graph::IdenticalDims along_rows = 1, along_columns = 2;
  EXPECT_TRUE(is_same(kRowsOf6, kRowsOf6, 0));
  // Pairs of 3 and strands of 3 give each device the same number of rows, but different rows.
  EXPECT_FALSE(is_same(kPairsOf6, kStrandsOf6, 0));
  EXPECT_FALSE(is_same(kPairsOf6, kStrandsOf6, along_columns));
  EXPECT_TRUE(is_same(kPairsOf6, kStrandsOf6, along_rows));
  // Rounded shares of 6 are not twice those of 3.
  EXPECT_FALSE(is_same(kPairsOf6, kRowsOf6, along_rows));
  EXPECT_FALSE(is_same(kRowsOf6, {FormKind::kSharded, 1, 1, 6, 1}, 3));
  EXPECT_FALSE(is_same(kWholeForm, kRowsOf6, along_rows));
  EXPECT_FALSE(is_same(kPartialForm, kWholeForm, along_rows));
}

TEST(ShardedStep, LossesSplitBySamplesCountLabels) {
  EXPECT_TRUE(splits_samples({FormKind::kSharded, 0, 1, 8, 1}));
  EXPECT_TRUE(splits_samples({FormKind::kSharded, 2, 1, 8, 1}));   // pixels
  EXPECT_FALSE(splits_samples({FormKind::kSharded, 1, 1, 8, 1}));  // classes
  EXPECT_FALSE(splits_samples(kWholeForm));
  EXPECT_FALSE(splits_samples(kPartialForm));
}

TEST(ShardedStep, AnIgnoredOperandIsReadForItsDtypeOnly) {
  graph::ShardingRule rule;
  rule.ignored = {1, 3};
  EXPECT_FALSE(is_ignored(rule, 0));
  EXPECT_TRUE(is_ignored(rule, 1));
  EXPECT_FALSE(is_ignored(rule, 2));
  EXPECT_TRUE(is_ignored(rule, 3));
}

// The bytes that cumsum gathers grow with the batch, those of gradients do not. So the number of
// gradients that would hide it depends on the batch, but the order must not.
TEST(ShardedStep, OperatorsHaveOneOrderAtAllBatches) {
  const auto graph = graph::parse_graph(
      "motley.graph/1\nname \"s\"\nsize batch 1 64\ninput %0: f32[batch, 4] \"x\"\n"
      "param %1: f32[4, 4] \"w\"\nparam %2: f32[4, 4] \"v\"\n"
      "op %3: f32[batch, 4] = aten::mm(%0, %1) fwd \"\"\n"
      "op %4: f32[batch, 4] = aten::mm(%3, %2) fwd \"\"\n"
      "op %5: f32[4, batch] = aten::t(%3) bwd \"\"\n"
      "op %6: f32[4, 4] = aten::mm(%5, %4) bwd \"\"\n"
      "op %7: f32[4, batch] = aten::t(%0) bwd \"\"\n"
      "op %8: f32[4, 4] = aten::mm(%7, %4) bwd \"\"\n"
      "op %9: f32[batch, 4] = aten::tanh(%4) fwd \"\"\n"
      "op %10: f32[batch, 4] = aten::cumsum(%9, 0, none) fwd \"\"\n"
      "op %11: f32[] = aten::sum(%10, none) fwd \"\"\n"
      "output loss %11\n"
      "output gradient %8 of \"w\"\noutput gradient %6 of \"v\"\n",
      "s");
  ASSERT_TRUE(graph) << graph.error().message;
  const auto order = [&](std::int64_t batch) {
    Sharding sharding;
    sharding.devices = {"a:0", "a:1"};
    sharding.shares = {1, 1};
    sharding.batch = batch;
    const auto rules = spread_samples(*graph, sharding);
    return plan_step(*graph, sharding, rules, {}).schedule.order;
  };
  EXPECT_EQ(order(2), order(64));
}

/// x [batch, 4], w [4, 4], b [4]: the sum over the samples of x w, plus b, and its gradients. The
/// column sums of x, %3, are terms on devices that have samples.
class ShardedStepTest : public ::testing::Test {
 protected:
  ShardedStepTest() {
    auto graph = graph::parse_graph(
        "motley.graph/1\nname \"s\"\nsize batch 1 64\ninput %0: f32[batch, 4] \"x\"\n"
        "param %1: f32[4, 4] \"w\"\nparam %2: f32[4] \"b\"\n"
        "op %3: f32[4] = aten::sum.dim_IntList(%0, [0], false, none) fwd \"\"\n"
        "op %4: f32[4] = aten::exp(%3) fwd \"\"\n"
        "op %5: f32[4] = aten::mul.Tensor(%3, %2) fwd \"\"\n"
        "op %6: f32[] = aten::sum(%5, none) fwd \"\"\n"
        "output loss %6\noutput gradient %5 of \"b\"\noutput extra %4\n",
        "s");
    EXPECT_TRUE(graph) << graph.error().message;
    graph_ = *std::move(graph);
    sharding_.devices = {"a:0", "a:1"};
    sharding_.shares = {1, 1};
    sharding_.batch = 6;
    rules_ = spread_samples(graph_, sharding_);
  }

  ShardedStep step(const LowerOptions& options = {}) const {
    return plan_step(graph_, sharding_, rules_, options);
  }

  graph::Graph graph_;
  Sharding sharding_;
  std::vector<graph::ShardingRule> rules_;
};

TEST_F(ShardedStepTest, OutputsEndAsTheirParametersAreKept) {
  EXPECT_THAT(step().outputs, ElementsAre(kWholeForm, kWholeForm, kWholeForm));
  sharding_.sources[2] = {FormKind::kSharded, 0, 1, 4, 1};
  EXPECT_THAT(step().outputs, ElementsAre(kWholeForm, sharding_.sources[2], kWholeForm));
}

// No operator needs the sum of the loss and the gradient, so they travel in buckets in the order of
// readiness. Nothing needs the exponential.
TEST_F(ShardedStepTest, TermsThatNobodyReadsTravelInBuckets) {
  const ShardedStep found = step();
  EXPECT_EQ(found.home(ValueId(3)), kPartialForm);
  EXPECT_EQ(found.home(ValueId(5)), kPartialForm);
  ASSERT_EQ(found.schedule.buckets.size(), 1u);
  std::vector<std::int64_t> outputs;
  for (const BucketItem& item : found.schedule.buckets[0].items) outputs.push_back(item.output);
  EXPECT_THAT(outputs, ElementsAre(BucketItem::kStop, 1, 0));
  EXPECT_THAT(found.schedule.direct, IsEmpty());
  for (const auto& forms : found.wanted) EXPECT_THAT(forms, IsEmpty());
  EXPECT_EQ(found.schedule.order.size(), 3u);
}

TEST_F(ShardedStepTest, ASumThatAnOperatorReadsIsWanted) {
  for (const std::size_t op : {2, 3}) sharding_.ops[op] = whole_strategy(rules_[op]);
  const ShardedStep found = step();
  EXPECT_THAT(found.wanted[3], ElementsAre(kWholeForm));
  EXPECT_THAT(found.wanted[5], IsEmpty());  // already whole
  EXPECT_TRUE(found.schedule.summed[3] != 0);
  EXPECT_EQ(found.schedule.early, 1u);                    // a sum of inputs alone goes first
  EXPECT_THAT(found.schedule.direct, ElementsAre(0, 1));  // nothing is left to exchange
}

// b in halves is gathered before the product that reads it; w is not read and not gathered.
TEST_F(ShardedStepTest, OnlyParametersThatAreReadAreGathered) {
  keep_parameters_in_parts(graph_, sharding_);
  EXPECT_EQ(sharding_.sources[1].kind, FormKind::kSharded);
  const ShardedStep found = step();
  ASSERT_EQ(found.gathers.size(), 1u);
  ASSERT_EQ(found.gathers[0].items.size(), 1u);
  EXPECT_EQ(found.gathers[0].items[0].value, ValueId(2));
  EXPECT_EQ(found.gathers[0].exchange, Exchange::kAllGather);
  EXPECT_EQ(found.gathers[0].ready, 1);  // the second operator of the order
  // Its gradient is scattered in halves; the loss is all-reduced.
  std::vector<Exchange> exchanges;
  for (const Bucket& bucket : found.schedule.buckets) exchanges.push_back(bucket.exchange);
  EXPECT_THAT(exchanges,
              ::testing::UnorderedElementsAre(Exchange::kAllReduce, Exchange::kReduceScatter));
}

TEST_F(ShardedStepTest, OneDeviceExchangesNothing) {
  sharding_.devices = {"a:0"};
  sharding_.shares = {1};
  rules_ = spread_samples(graph_, sharding_);
  const ShardedStep found = step();
  EXPECT_THAT(found.schedule.buckets, IsEmpty());
  EXPECT_THAT(found.gathers, IsEmpty());
  EXPECT_THAT(found.schedule.direct, ElementsAre(0, 1));
}

}  // namespace
}  // namespace motley::synth
