#include "motley/plan/plan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <functional>

#include "motley/base/file.h"
#include "motley/testing/places.h"

namespace motley::plan {
namespace {

cluster::Cluster lab() {
  const char* text = R"(schema = "motley.cluster/1"
name = "lab"
[[node]]
name = "a"
  [[node.device]]
  kind = "cpu"
  count = 2
[[node]]
name = "b"
  [[node.device]]
  kind = "cpu"
  speed = 0.4
)";
  auto cluster = cluster::parse_cluster(text, "lab.toml");
  EXPECT_TRUE(cluster.has_value()) << cluster.error().message;
  return *cluster;
}

/// 24 samples on a:0 and 16 on b:0.
Plan two_replicas(const cluster::Cluster& cluster) {
  Plan plan;
  plan.model_hash = "00000000000000aa";
  plan.cluster_hash = cluster::cluster_hash(cluster);
  plan.global_batch = 40;
  plan.replicas = make_replicas({DeviceId(0), DeviceId(1), DeviceId(2)}, {24, 0, 16});
  return plan;
}

std::string error_of(const Result<void>& result) { return result ? "" : result.error().message; }

TEST(Plan, MakeReplicasLeavesOutIdleDevices) {
  const Plan plan = two_replicas(lab());
  ASSERT_EQ(plan.replicas.size(), 2u);
  EXPECT_EQ(members(plan), (std::vector<Member>{{DeviceId(0), 24}, {DeviceId(2), 16}}));
  EXPECT_FALSE(splits_operators(plan));
}

/// 40 samples on three devices that share two operators.
Plan one_region(const cluster::Cluster& cluster) {
  Plan plan = two_replicas(cluster);
  Region region{{DeviceId(0), DeviceId(1), DeviceId(2)}, {3, 0, 1}, {}, {}};
  region.operators = {
      {.factor = 1}, {.factor = 0, .outer = 3, .inner = 64}, {}, {.partial = {0, 2}}};
  region.parameters = {{"fc.bias", {graph::FormKind::kSharded, 0, 1, 12, 1}},
                       {"fc.weight", {graph::FormKind::kSharded, 0, 3, 12, 64}}};
  region.exchanges = {{"motley::all_gather", Bytes(4096), 96, ExchangeMethod::kGrouped}};
  plan.replicas = {{40, {region}, 2}};
  return plan;
}

TEST(Plan, MembersOfARegionHaveRoundedShares) {
  const Plan plan = one_region(lab());
  EXPECT_TRUE(splits_operators(plan));
  EXPECT_EQ(members(plan),
            (std::vector<Member>{{DeviceId(0), 30}, {DeviceId(1), 0}, {DeviceId(2), 10}}));
}

/// Expects that the plan prints to the golden file of this name and reads back.
void expect_golden(Plan plan, const cluster::Cluster& cluster, const std::string& name) {
  plan.cluster_hash = "00000000000000bb";
  const auto golden =
      read_file(testing::source_path(fmt::format("tests/golden/plan/{}.json", name)));
  ASSERT_TRUE(golden.has_value()) << golden.error().message;
  EXPECT_EQ(print_plan(plan, cluster), *golden);
  const auto parsed = parse_plan(*golden, "golden", cluster);
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  EXPECT_EQ(*parsed, plan);
}

TEST(Plan, PrintsGolden) {
  const cluster::Cluster cluster = lab();
  Plan plan = two_replicas(cluster);
  plan.recipe.optimizer = {.kind = OptimizerKind::kAdamW, .lr = 3e-4, .weight_decay = 0.01};
  expect_golden(plan, cluster, "two_replicas");
  expect_golden(one_region(cluster), cluster, "one_region");
}

OperatorSplit random_split() {
  OperatorSplit split;
  const int kind = *rc::gen::inRange(0, 3);
  if (kind == 1) {
    split.factor = *rc::gen::inRange(0, 1000);
    split.outer = *rc::gen::inRange<std::int64_t>(1, 1 << 30);
    split.inner = *rc::gen::inRange<std::int64_t>(1, 3);
  }
  if (kind == 2)
    split.partial =
        *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 9)));
  return split;
}

graph::Form random_form() {
  return {graph::FormKind::kSharded, *rc::gen::inRange(0, 8), *rc::gen::inRange<std::int64_t>(1, 4),
          *rc::gen::inRange<std::int64_t>(1, 1 << 30), *rc::gen::inRange<std::int64_t>(1, 4)};
}

RC_GTEST_PROP(Plan, ParseInvertsPrint, ()) {
  const cluster::Cluster cluster = lab();
  Plan plan;
  plan.model_hash = *rc::gen::string<std::string>();
  // JSON cannot hold text outside UTF-8; hashes are hexadecimal digits.
  plan.model_hash.erase(std::remove_if(plan.model_hash.begin(), plan.model_hash.end(),
                                       [](char c) { return (c & 0x80) != 0; }),
                        plan.model_hash.end());
  plan.cluster_hash = "f";
  plan.global_batch = *rc::gen::arbitrary<std::int64_t>();
  const auto count = *rc::gen::inRange<std::size_t>(0, 4);
  for (std::size_t i = 0; i < count; ++i) {
    Replica replica{*rc::gen::arbitrary<std::int64_t>(), {}, *rc::gen::inRange(1, 5)};
    for (int r = *rc::gen::inRange(0, 3); r > 0; --r) {
      Region region;
      for (int d = *rc::gen::inRange(0, 3); d > 0; --d) {
        region.devices.emplace_back(*rc::gen::inRange(0, 3));
        region.shares.push_back(*rc::gen::arbitrary<double>());
      }
      for (int o = *rc::gen::inRange(0, 3); o > 0; --o) region.operators.push_back(random_split());
      for (int p = *rc::gen::inRange(0, 3); p > 0 && !region.operators.empty(); --p)
        region.parameters.push_back(
            {fmt::format("w{}", p), random_form(), *rc::gen::arbitrary<bool>()});
      for (int e = *rc::gen::inRange(0, 3); e > 0 && !region.operators.empty(); --e)
        region.exchanges.push_back({fmt::format("op{}", e), Bytes(*rc::gen::inRange(0, 99)),
                                    *rc::gen::inRange(1, 99),
                                    *rc::gen::elementOf(kExchangeMethods)});
      replica.regions.push_back(region);
    }
    plan.replicas.push_back(replica);
  }
  plan.recipe.optimizer.kind =
      *rc::gen::element(OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kAdamW);
  plan.recipe.optimizer.lr = std::abs(*rc::gen::arbitrary<double>());
  plan.recipe.optimizer.momentum = std::abs(*rc::gen::arbitrary<double>());
  plan.recipe.optimizer.nesterov = *rc::gen::arbitrary<bool>();
  plan.batch_norm = *rc::gen::element(BatchNormMode::kGlobal, BatchNormMode::kLocal);
  plan.updates = *rc::gen::element(Updates::kNative, Updates::kPortable);
  plan.tf32 = *rc::gen::arbitrary<bool>();
  plan.batch_norm_span = *rc::gen::element(BatchNormSpan::kStep, BatchNormSpan::kMicroBatch);
  plan.bucket_bytes = Bytes(*rc::gen::arbitrary<std::int64_t>());
  const auto parsed = parse_plan(print_plan(plan, cluster), "p", cluster);
  RC_ASSERT(parsed.has_value());
  RC_ASSERT(*parsed == plan);
}

TEST(PlanParse, UnknownDeviceIsStale) {
  const cluster::Cluster cluster = lab();
  std::string text = print_plan(two_replicas(cluster), cluster);
  text.replace(text.find("b:0"), 3, "b:7");
  const auto parsed = parse_plan(text, "plan.json", cluster);
  ASSERT_FALSE(parsed.has_value());
  EXPECT_EQ(parsed.error().kind, ErrorKind::kStale);
  EXPECT_EQ(parsed.error().message,
            "plan.json: replica 1: region 0: cluster 'lab' has no device 'b:7', did you mean "
            "'b:0'?; plan again for this cluster");
}

/// Returns the message for a plan's text with one part replaced.
std::string message_for(const std::string& from, const std::string& to,
                        Plan (*make)(const cluster::Cluster&) = two_replicas) {
  const cluster::Cluster cluster = lab();
  std::string text = print_plan(make(cluster), cluster);
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  const auto parsed = parse_plan(text, "p", cluster);
  return parsed ? "" : parsed.error().message;
}

TEST(PlanParse, WholeMessages) {
  EXPECT_EQ(message_for("motley.plan/1", "motley.plan/9"),
            "p: key 'schema': found 'motley.plan/9', wanted 'motley.plan/1'");
  EXPECT_EQ(message_for("\"bucket_bytes\"", "\"bucket_byte\""), "p: key 'bucket_bytes' is missing");
  EXPECT_EQ(message_for("\"bucket_bytes\"", "\"buckets\": 1, \"bucket_bytes\""),
            "p: unknown key 'buckets'");
  EXPECT_EQ(message_for("\"nesterov\"", "\"nesterof\": true, \"nesterov\""),
            "p: optimizer: unknown key 'nesterof', did you mean 'nesterov'?");
  EXPECT_EQ(message_for("\"samples\": 24", "\"samples\": 24.5"),
            "p: replica 0: key 'samples': found a number, wanted an integer");
  EXPECT_EQ(message_for("\"batch_norm\": \"global\"", "\"batch_norm\": \"no\""),
            "p: key 'batch_norm': found 'no', wanted 'global' or 'local'");
  EXPECT_EQ(message_for("\"batch_norm\"", "\"batch_norm_span\": \"no\", \"batch_norm\""),
            "p: key 'batch_norm_span': found 'no', wanted 'step' or 'micro_batch'");
  EXPECT_EQ(message_for("\"batch_norm\"", "\"updates\": \"no\", \"batch_norm\""),
            "p: key 'updates': found 'no', wanted 'native' or 'portable'");
  EXPECT_EQ(message_for("\"sgd\"", "\"sgdd\""),
            "p: optimizer: unknown optimizer 'sgdd', wanted one of sgd adam adamw adagrad "
            "rmsprop lion lamb adafactor muon, did you mean 'sgd'?");
  EXPECT_EQ(message_for("\"lr\": 0.01", "\"lr\": -1"),
            "p: optimizer: key 'lr': found -1.0, wanted at least 0");
  EXPECT_EQ(message_for("\"beta1\": 0.9", "\"beta1\": 1"),
            "p: optimizer: key 'beta1': found 1.0, wanted at least 0 and below 1");
  EXPECT_EQ(message_for("\"replicas\": [", "\"replicas\": 3, \"x\": ["),
            "p: key 'replicas': wanted a list");
  EXPECT_EQ(message_for("\"a:0\"", "7"),
            "p: replica 0: region 0: key 'devices': wanted device names");
}

TEST(PlanParse, WholeMessagesOfARegion) {
  const auto message = [](const std::string& from, const std::string& to) {
    return message_for(from, to, one_region);
  };
  const std::string wanted = ", wanted 'whole', 'factor 1', 'factor 1: 3*_*64' or 'terms 0 2'";
  EXPECT_EQ(message("\"factor 1\"", "\"factor\""),
            "p: replica 0: region 0: operator 0: found \"factor\"" + wanted);
  EXPECT_EQ(message("\"factor 1\"", "3"), "p: replica 0: region 0: operator 0: found 3" + wanted);
  EXPECT_EQ(message("\"operators\"", "\"operator\""),
            "p: replica 0: region 0: unknown key 'operator'");
  EXPECT_EQ(message("\"S(0: 12)\"", "\"R\""),
            "p: replica 0: region 0: parameter 'fc.bias': found \"R\", wanted 'S(0: 12)' or "
            "'S(0: 3*12*64)'");
  EXPECT_EQ(message("\"grouped\"", "\"ring\""),
            "p: replica 0: region 0: exchange 0: found \"ring\", wanted 'native', 'padded', "
            "'grouped' or 'hierarchical'");
  EXPECT_EQ(message("\"parameters\": {", "\"parameters\": 1, \"x\": {"),
            "p: replica 0: region 0: key 'parameters': wanted an object");
  const std::string names = ", wanted names of 'parameters', each once";
  const auto again = [&](const std::string& list) {
    return message("\"parameters\": {", "\"gather_again\": " + list + ", \"parameters\": {");
  };
  EXPECT_EQ(again("1"), "p: replica 0: region 0: key 'gather_again': wanted a list");
  EXPECT_EQ(again("[\"fc\"]"), "p: replica 0: region 0: key 'gather_again': found \"fc\"" + names);
  EXPECT_EQ(again("[\"fc.bias\", \"fc.bias\"]"),
            "p: replica 0: region 0: key 'gather_again': found \"fc.bias\"" + names);
}

TEST(PlanText, OwnersReadBack) {
  Plan plan = two_replicas(lab());
  EXPECT_FALSE(has_stages(plan));
  plan.owners = {{{"*.bias"}, {{DeviceId(0), 1}}},
                 {{"fc.*", "w"}, {{DeviceId(0), 1}, {DeviceId(2), 2.5}}}};
  EXPECT_TRUE(has_stages(plan));
  ASSERT_TRUE(verify_plan(plan, "00000000000000aa", lab()));
  const auto parsed = parse_plan(print_plan(plan, lab()), "plan.json", lab());
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(*parsed, plan);
  const auto said = [&](const std::string& keys) {
    return message_for("\"batch_norm\"", keys + ", \"batch_norm\"");
  };
  const auto said_of_shares = [&](const std::string& shares) {
    return said("\"owners\": [{\"parameters\": [\"*\"], \"shares\": " + shares + "}]");
  };
  EXPECT_EQ(said_of_shares("{}"),
            "p: owners 0: key 'shares': found {}, wanted devices with numbers");
  EXPECT_EQ(said_of_shares("[1]"),
            "p: owners 0: key 'shares': found [1], wanted devices with numbers");
  EXPECT_EQ(said_of_shares("{\"a:0\": \"1\"}"),
            "p: owners 0: key 'shares': device a:0: found \"1\", wanted a number");
  EXPECT_EQ(said("\"owners\": [{\"parameters\": [1], \"shares\": {}}]"),
            "p: owners 0: key 'parameters': found 1, wanted a pattern of names");
  const auto verified = [&](std::map<DeviceId, double> shares) {
    plan.owners = {{{"*"}, std::move(shares)}};
    return error_of(verify_plan(plan, "00000000000000aa", lab()));
  };
  EXPECT_EQ(verified({{DeviceId(0), -1}, {DeviceId(2), 2}}),
            "plan: owners 0: found a share of -1, wanted 0 or more");
  EXPECT_EQ(verified({{DeviceId(0), 0}}), "plan: owners 0: no share is above 0");
  EXPECT_EQ(verified({{DeviceId(0), 1}, {DeviceId(1), 1}}),
            "plan: owners 0: device a:1 is in no replica");
  plan.owners = {{{}, {{DeviceId(0), 1}}}};
  EXPECT_EQ(error_of(verify_plan(plan, "00000000000000aa", lab())),
            "plan: owners 0: no parameters");
}

TEST(PlanText, StateSharesOfOlderFilesAreOwnersOfAllParameters) {
  Plan plan = two_replicas(lab());
  plan.owners = {{{"*"}, {{DeviceId(0), 1}, {DeviceId(2), 2.5}}}};
  Json older = Json::parse(print_plan(plan, lab()));
  older["state_shares"] = {{"a:0", 1.0}, {"b:0", 2.5}};
  older.erase("owners");
  const auto parsed = parse_plan(older.dump(), "plan.json", lab());
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(*parsed, plan);
}

TEST(PlanText, ParametersGatheredAgainReadBack) {
  Plan plan = one_region(lab());
  plan.replicas[0].regions[0].parameters[1].is_gathered_again = true;
  const std::string text = print_plan(plan, lab());
  EXPECT_THAT(text, ::testing::ContainsRegex("\"gather_again\": .\n *\"fc.weight\"\n"));
  const auto parsed = parse_plan(text, "plan.json", lab());
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(*parsed, plan);
}

TEST(OperatorSplit, TextReadsBack) {
  for (const char* text : {"whole", "factor 0", "factor 1: 3*_*64", "terms 0 2"}) {
    const auto split = parse_split(text);
    ASSERT_TRUE(split) << text;
    EXPECT_EQ(print_split(*split), text);
  }
  for (const char* text : {"", "wholes", "whole 1", "factor -1", "factor 1: 3*_*0", "factor 1: 3",
                           "terms", "terms -1", "factor 99999999999"})
    EXPECT_FALSE(parse_split(text)) << text;
}

TEST(PlanVerify, AcceptsAPlanForThisModelAndCluster) {
  const cluster::Cluster cluster = lab();
  EXPECT_EQ(error_of(verify_plan(two_replicas(cluster), "00000000000000aa", cluster)), "");
  EXPECT_EQ(error_of(verify_plan(one_region(cluster), "00000000000000aa", cluster)), "");
}

TEST(PlanVerify, RegionsOfSeveralDevices) {
  const cluster::Cluster cluster = lab();
  const auto message = [&](const std::function<void(Plan&, Region&)>& change) {
    Plan plan = one_region(cluster);
    change(plan, plan.replicas[0].regions[0]);
    return error_of(verify_plan(plan, "00000000000000aa", cluster));
  };
  EXPECT_EQ(message([](Plan&, Region& region) {
              region.shares = {1, -1, 0};
            }),
            "plan: replica 0: found a share of -1, wanted 0 or more; replica 0: the shares sum to "
            "0, wanted a number above 0");
  EXPECT_EQ(message([](Plan&, Region& region) { region.shares.assign(3, 1e308); }),
            "plan: replica 0: the shares sum to inf, wanted a number above 0");
  EXPECT_EQ(message([](Plan&, Region& region) { region.shares = {1}; }),
            "plan: replica 0: found 1 shares for 3 devices");
  EXPECT_EQ(message([](Plan&, Region& region) { region.devices[1] = DeviceId(0); }),
            "plan: device a:0 is twice in replica 0");
  EXPECT_EQ(message([](Plan&, Region& region) { region.operators.clear(); }),
            "plan: replica 0: found 3 devices, but not how they split the operators");
  EXPECT_EQ(message([](Plan& plan, Region&) { plan.batch_norm = BatchNormMode::kLocal; }),
            "plan: batch_norm is local: where operators are split it can only be global");
  EXPECT_EQ(message([](Plan& plan, Region&) { plan.replicas[0].micro_batches = 41; }),
            "plan: replica 0: 40 samples cannot be done in 41 micro-batches");
  EXPECT_EQ(message([](Plan& plan, Region&) { plan.replicas[0].micro_batches = 0; }),
            "plan: replica 0: 40 samples cannot be done in 0 micro-batches");
  EXPECT_EQ(message([](Plan& plan, Region&) { plan.replicas[0].turns = 3; }),
            "plan: replica 0: 3 of 2 micro-batches cannot take turns");
  EXPECT_EQ(message([](Plan& plan, Region&) { plan.replicas[0].turns = 0; }),
            "plan: replica 0: 0 of 2 micro-batches cannot take turns");
  EXPECT_EQ(message([](Plan& plan, Region&) {
              plan.replicas[0].micro_batches = 3;
              plan.replicas[0].turns = 2;
            }),
            "plan: micro-batches take turns: only those of one replica whose one region several "
            "devices share do, in equal parts");
  EXPECT_EQ(message([](Plan&, Region& region) { region.turns = 2; }),
            "plan: replica 0: regions take turns in plans of stages; in this one the replica does");
  EXPECT_EQ(message([](Plan& plan, Region& region) {
              plan.replicas[0].micro_batches = 3;
              region.turns = 3;
            }),
            "plan: replica 0: turns is 3, wanted 1 or 2");
  EXPECT_EQ(message([](Plan& plan, Region& region) {
              plan.replicas[0].micro_batches = 3;
              region.turns = 2;
            }),
            "");
}

// Three micro-batches of 40 samples are unequal: such a plan has stages.
TEST(PlanText, TurnsOfARegionRoundTrip) {
  const cluster::Cluster cluster = lab();
  Plan plan = one_region(cluster);
  plan.replicas[0].micro_batches = 3;
  plan.replicas[0].regions[0].turns = 2;
  const std::string text = print_plan(plan, cluster);
  EXPECT_THAT(text, ::testing::HasSubstr("\"turns\": 2"));
  const auto parsed = parse_plan(text, "plan.json", cluster);
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(*parsed, plan);
}

/// 40 samples: a:0 and a:1 as two stages, in 7 micro-batches, beside b:0 in two.
Plan two_stages_and_one(const cluster::Cluster& cluster) {
  Plan plan = two_replicas(cluster);
  Region first{{DeviceId(0)}, {1.0}}, second{{DeviceId(1)}, {1.0}};
  first.covers = {{0, 3}, {7, 9}};
  second.covers = {{3, 7}};
  second.ahead = 2;
  second.speed = 0.25;
  second.lag = 0.5;
  second.recomputes = {{3, 5}, {6, 7}};
  second.late_weights = true;
  plan.replicas = {{31, {first, second}, 7}, {9, {Region{{DeviceId(2)}, {1.0}}}, 2}};
  return plan;
}

TEST(PlanText, StagesRoundTrip) {
  const cluster::Cluster cluster = lab();
  const Plan plan = two_stages_and_one(cluster);
  ASSERT_TRUE(verify_plan(plan, "00000000000000aa", cluster));
  const std::string text = print_plan(plan, cluster);
  EXPECT_THAT(text, ::testing::HasSubstr("\"7-8\""));
  const auto parsed = parse_plan(text, "plan.json", cluster);
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(*parsed, plan);
  EXPECT_TRUE(has_stages(plan));
  EXPECT_FALSE(has_stages(two_replicas(cluster)));
  EXPECT_EQ(members(plan),
            (std::vector<Member>{{DeviceId(0), 31}, {DeviceId(1), 31}, {DeviceId(2), 9}}));
}

// 31 in 7: four each, and the first three have one more.
TEST(FindStretches, TheFirstHaveOneMore) {
  const std::vector<Stretch> stretches = find_stretches({31, {}, 7}, 5);
  ASSERT_EQ(stretches.size(), 7u);
  EXPECT_EQ(stretches[0], (Stretch{5, 5}));
  EXPECT_EQ(stretches[2], (Stretch{15, 5}));
  EXPECT_EQ(stretches[3], (Stretch{20, 4}));
  EXPECT_EQ(stretches[6], (Stretch{32, 4}));
}

TEST(PlanVerify, RegionsOfAReplica) {
  const cluster::Cluster cluster = lab();
  const auto message = [&](const std::function<void(std::vector<Region>&)>& change) {
    Plan plan = two_stages_and_one(cluster);
    change(plan.replicas[0].regions);
    return error_of(verify_plan(plan, "00000000000000aa", cluster));
  };
  EXPECT_EQ(message([](std::vector<Region>& regions) { regions[1].covers[0].end = 8; }),
            "plan: replica 0: operator 7 is in two regions");
  EXPECT_EQ(message([](std::vector<Region>& regions) { regions[0].covers[1].first = 2; }),
            "plan: replica 0: region 0: operators 2 are not behind those before; replica 0: "
            "operator 2 is in two regions; replica 0: operator 3 is in two regions");
  EXPECT_EQ(message([](std::vector<Region>& regions) { regions[1].covers.clear(); }),
            "plan: replica 0: region 1 does not say which operators it covers");
  EXPECT_EQ(message([](std::vector<Region>& regions) { regions[1].ahead = -1; }),
            "plan: replica 0: region 1: ahead is -1, wanted 0 or more");
  EXPECT_EQ(message([](std::vector<Region>& regions) { regions[1].turns = 2; }),
            "plan: replica 0: region 1: one device takes no turns");
  EXPECT_EQ(message([](std::vector<Region>& regions) { regions[1].turns = 0; }),
            "plan: replica 0: region 1: turns is 0, wanted 1 or 2; replica 0: region 1: one device "
            "takes no turns");
  EXPECT_EQ(message([](std::vector<Region>& regions) { regions[0].speed = 0; }),
            "plan: replica 0: region 0: speed is 0, wanted more than 0");
  EXPECT_EQ(message([](std::vector<Region>& regions) { regions[0].lag = -1; }),
            "plan: replica 0: region 0: lag is -1, wanted 0 or more");
  EXPECT_EQ(
      message([](std::vector<Region>& regions) {
        regions[1].recomputes = {{2, 4}};
      }),
      "plan: replica 0: region 1: operators 2-3 are to be done again and not all are covered");
  EXPECT_EQ(message([](std::vector<Region>& regions) { regions[1].recomputes[1].first = 4; }),
            "plan: replica 0: region 1: recompute: operators 4 are not behind those before");
  EXPECT_EQ(message([](std::vector<Region>& regions) { regions[1].devices = {DeviceId(2)}; }),
            "plan: device b:0 is used by replicas 0 and 1");
  EXPECT_EQ(message([](std::vector<Region>& regions) { regions[1].devices = {DeviceId(0)}; }), "");
}

TEST(PlanVerify, OtherModelOrClusterIsStale) {
  const cluster::Cluster cluster = lab();
  Plan plan = two_replicas(cluster);
  plan.cluster_hash = "00000000000000bb";
  const auto result = verify_plan(plan, "00000000000000cc", cluster);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().kind, ErrorKind::kStale);
  EXPECT_EQ(result.error().message,
            fmt::format("plan: made for model 00000000000000aa, this model is 00000000000000cc; "
                        "plan again; made for cluster 00000000000000bb, this cluster is {}; plan "
                        "again",
                        cluster::cluster_hash(cluster)));
}

TEST(PlanVerify, ReportsAllViolations) {
  const cluster::Cluster cluster = lab();
  Plan plan = two_replicas(cluster);
  plan.replicas.push_back({0, {Region{{DeviceId(0)}, {0.5}}}});
  plan.replicas.push_back({1, {Region{{DeviceId(9)}, {1.0}}}});
  plan.replicas.push_back({1, {}});
  plan.bucket_bytes = Bytes(0);
  const auto result = verify_plan(plan, "00000000000000aa", cluster);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().kind, ErrorKind::kUsage);
  EXPECT_EQ(result.error().message,
            "plan: replica 2: found 0 samples, wanted at least 1; replica 2: the share of its only "
            "device must be 1; device a:0 is used by replicas 0 and 2; replica 3: the cluster has "
            "no device number 9; replica 4: found no region, wanted at least 1; the replicas have "
            "42 samples "
            "together, the global batch is 40; bucket_bytes is 0, wanted at least 1");
}

TEST(PlanVerify, NeedsAReplica) {
  const cluster::Cluster cluster = lab();
  Plan plan = two_replicas(cluster);
  plan.replicas.clear();
  EXPECT_EQ(error_of(verify_plan(plan, "00000000000000aa", cluster)),
            "plan: no replicas, wanted at least 1");
}

}  // namespace
}  // namespace motley::plan
