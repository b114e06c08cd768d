#include "motley/synth/ranks/sharded_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/synth/ranks/lower_sharded.h"
#include "motley/synth/ranks/sample_sharding.h"
#include "motley/testing/split_operator.h"

namespace motley::synth {
namespace {

using graph::Form;
using graph::FormKind;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// x [batch, 6] times w [6, 6], plus b [6].
class SharedPlanTest : public ::testing::Test {
 protected:
  SharedPlanTest()
      : graph_(small_graph(
            "input %0: f32[batch, 6] \"x\"\nparam %1: f32[6, 6] \"w\"\nparam %2: f32[6] \"b\"\n"
            "op %3: f32[batch, 6] = aten::mm(%0, %1) fwd \"\"\n"
            "op %4: f32[batch, 6] = aten::add.Tensor(%3, %2, 1) fwd \"\"\n")),
        cluster_(*cluster::parse_cluster("schema = \"motley.cluster/1\"\nname = \"lab\"\n[[node]]\n"
                                         "name = \"a\"\n[[node.device]]\nkind = \"cpu\"\ncount = "
                                         "3\n",
                                         "lab")) {}

  plan::Plan plan_of(std::vector<plan::Replica> replicas) const {
    plan::Plan plan;
    plan.model_hash = "aa";
    plan.cluster_hash = cluster::cluster_hash(cluster_);
    plan.global_batch = 12;
    plan.replicas = std::move(replicas);
    EXPECT_TRUE(plan::verify_plan(plan, "aa", cluster_));
    return plan;
  }

  const graph::Graph graph_;
  const cluster::Cluster cluster_;
};

TEST_F(SharedPlanTest, OneDeviceHasAllOfEverything) {
  const auto found =
      find_ruled_sharding(graph_, plan_of(plan::make_replicas({DeviceId(1)}, {12})), cluster_);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_THAT(found->sharding.devices, ElementsAre("a:1"));
  EXPECT_EQ(found->sharding.batch, 12);
  for (const Form& form : found->sharding.sources) EXPECT_EQ(form, graph::kWholeForm);
  for (const graph::ShardingRule& rule : found->rules) EXPECT_THAT(rule.factors, IsEmpty());
}

// Replicas of 8 and 4 samples in two micro-batches each: 6 samples at a time in the same shares.
TEST_F(SharedPlanTest, ReplicasSpreadTheSamplesOfAMicroBatch) {
  auto replicas = plan::make_replicas({DeviceId(0), DeviceId(2)}, {8, 4});
  for (plan::Replica& replica : replicas) replica.micro_batches = 2;
  const auto found = find_ruled_sharding(graph_, plan_of(replicas), cluster_);
  ASSERT_TRUE(found) << found.error().message;
  const Sharding& sharding = found->sharding;
  EXPECT_THAT(sharding.devices, ElementsAre("a:0", "a:2"));
  EXPECT_THAT(sharding.shares, ElementsAre(8, 4));
  EXPECT_EQ(sharding.batch, 6);
  EXPECT_EQ(sharding.micro_batches, 2);
  EXPECT_EQ(sharding.sources[0], (Form{FormKind::kSharded, 0, 1, 6, 1}));
  EXPECT_EQ(sharding.ops[0].results[0], (Form{FormKind::kSharded, 0, 1, 6, 1}));
  EXPECT_EQ(sharding.sources[1], graph::kWholeForm);
}

// The product by three pairs of columns, as terms, the addition; w is kept as pairs, b whole.
TEST_F(SharedPlanTest, ARegionSaysWhatTheRulesDoNot) {
  const std::vector<graph::ShardingRule> rules = find_rules(graph_, 12);
  const Form pairs{FormKind::kSharded, 1, 1, 3, 2};
  Sharding sharding;
  sharding.devices = {"a:2", "a:0"};
  sharding.shares = {3, 1};
  sharding.batch = 12;
  sharding.sources.assign(graph_.values.size(), graph::kWholeForm);
  sharding.sources[0] = input_form(graph_, ValueId(0), 12);
  sharding.sources[1] = pairs;
  graph::Strategy terms;  // strategy of x w plus b, with b on one device
  for (const graph::Strategy& way : linear_strategies(rules[1]))
    if (way.operands[0] == graph::kPartialForm) terms = way;
  sharding.ops = {*follow(rules[0], 1, pairs), terms, whole_strategy(rules[2])};
  const plan::Region region = make_region(graph_, sharding, cluster_);
  EXPECT_THAT(region.devices, ElementsAre(DeviceId(2), DeviceId(0)));
  EXPECT_THAT(region.shares, ElementsAre(3, 1));
  ASSERT_EQ(region.operators.size(), 3u);
  EXPECT_EQ(print_split(region.operators[0]), "factor 2: 1*_*2");
  EXPECT_EQ(print_split(region.operators[1]), "terms 0 1");
  EXPECT_EQ(print_split(region.operators[2]), "whole");
  ASSERT_EQ(region.parameters.size(), 1u);
  EXPECT_EQ(region.parameters[0], (plan::KeptParameter{"w", pairs}));
  const auto found = find_sharding(graph_, plan_of({{12, {region}}}), cluster_);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(*found, sharding);
}

// Cuts of w that its shape does not admit: too many parts, a wrong number, a missing dimension.
TEST_F(SharedPlanTest, ParametersAreCutAsTheirShapesAre) {
  plan::Region region;
  region.devices = {DeviceId(0), DeviceId(1)};
  region.shares = {1, 1};
  region.operators.resize(3);
  const auto is_sound = [&](const Form& form) {
    region.parameters = {{"w", form}};
    const auto found = find_sharding(graph_, plan_of({{12, {region}}}), cluster_);
    if (!found) {
      EXPECT_EQ(found.error().message,
                "plan: parameter 'w' cannot be cut as " + print_form(form) + "; plan again");
    }
    return found.has_value();
  };
  EXPECT_TRUE(is_sound({FormKind::kSharded, 1, 2, 3, 1}));
  EXPECT_TRUE(is_sound({FormKind::kSharded, 0, 1, 6, 1}));
  EXPECT_FALSE(is_sound({FormKind::kSharded, 0, 2, 6, 1}));
  EXPECT_FALSE(is_sound({FormKind::kSharded, 0, 1, 5, 1}));
  EXPECT_FALSE(is_sound({FormKind::kSharded, 0, 4, 1, 1}));
  EXPECT_FALSE(is_sound({FormKind::kSharded, 2, 1, 6, 1}));
  EXPECT_FALSE(is_sound({FormKind::kSharded, 0, 1, 12, 1}));
}

TEST_F(SharedPlanTest, SaysWhatIsNotOfThisModel) {
  plan::Region sound;
  sound.devices = {DeviceId(0), DeviceId(1)};
  sound.shares = {1, 1};
  sound.operators.resize(3);
  const auto error_of = [&](const auto& change) {
    plan::Region region = sound;
    change(region);
    const auto found = find_sharding(graph_, plan_of({{12, {region}}}), cluster_);
    EXPECT_FALSE(found);
    if (found) return std::string();
    EXPECT_EQ(found.error().kind, ErrorKind::kStale);
    EXPECT_EQ(found.error().code, "plan.stale");
    return found.error().message;
  };
  EXPECT_EQ(error_of([](plan::Region& region) { region.operators.pop_back(); }),
            "plan: it splits 2 operators, the model has 3; plan again");
  EXPECT_EQ(error_of([](plan::Region& region) {
              region.parameters = {{"v", {FormKind::kSharded, 0, 1, 6, 1}}};
            }),
            "plan: the model has no parameter 'v'; plan again");
  EXPECT_EQ(error_of([](plan::Region& region) {
              region.recomputes = {{1, 4}};
            }),
            "plan: operator 3 is to be done again, the model has 3; plan again");
  // A missing factor; one of 6 in fours; terms of both operands of a product.
  for (const char* split : {"factor 3", "factor 2: 4*_*1", "terms 0 1"})
    EXPECT_EQ(
        error_of([&](plan::Region& region) { region.operators[0] = *plan::parse_split(split); }),
        std::string("plan: operator 0, aten::mm in module '', cannot be split as '") + split +
            "'; its rule is (a b) (b c) -> (a c); plan again");
}

}  // namespace
}  // namespace motley::synth
