#include "motley/search/region/random_sharding.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <functional>
#include <map>

#include "motley/base/random.h"
#include "motley/program/program_text.h"
#include "motley/synth/lower.h"
#include "motley/synth/ranks/sharded_plan.h"
#include "motley/testing/golden.h"
#include "motley/testing/places.h"
#include "motley/testing/rounds.h"
#include "motley/testing/run_program.h"

namespace motley::synth {
namespace {

using ::testing::StartsWith;

cluster::Cluster four_devices() {
  return *cluster::parse_cluster(R"(schema = "motley.cluster/1"
name = "lab"
[[node]]
name = "a"
  [[node.device]]
  kind = "cpu"
  count = 4
)",
                                 "lab.toml");
}

/// Draws some devices in any order with shares from 0 to 4, at least one above 0.
Sharding draw(const graph::Graph& graph, std::uint64_t seed) {
  SplitMix64 random(seed);
  Sharding sharding;
  std::vector<std::string> names = {"a:0", "a:1", "a:2", "a:3"};
  for (std::size_t i = names.size(); i > 1; --i) std::swap(names[i - 1], names[random.below(i)]);
  names.resize(2 + random.below(3));
  sharding.devices = names;
  for (std::size_t i = 0; i < names.size(); ++i)
    sharding.shares.push_back(static_cast<double>(random.below(5)));
  sharding.shares[random.below(names.size())] += 1;
  sharding.batch = 6;
  search::draw_sharding(graph, seed, sharding);
  return sharding;
}

plan::Plan make_plan(const graph::Graph& graph, const Sharding& sharding,
                     const cluster::Cluster& cluster) {
  plan::Plan plan;
  plan.model_hash = "aa";
  plan.cluster_hash = cluster::cluster_hash(cluster);
  plan.global_batch = sharding.batch;
  plan.replicas = {{sharding.batch, {make_region(graph, sharding, cluster)}}};
  return plan;
}

class ShardedPlan : public ::testing::TestWithParam<std::string> {};

TEST_P(ShardedPlan, FileReadsBackAsTheSameSharding) {
  const graph::Graph& graph = read_graph(GetParam());
  const cluster::Cluster cluster = four_devices();
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    const Sharding sharding = draw(graph, seed);
    const plan::Plan plan = make_plan(graph, sharding, cluster);
    const auto verified = plan::verify_plan(plan, "aa", cluster);
    ASSERT_TRUE(verified) << verified.error().message;
    const auto parsed = plan::parse_plan(plan::print_plan(plan, cluster), "plan", cluster);
    ASSERT_TRUE(parsed) << parsed.error().message;
    const auto found = find_sharding(graph, *parsed, cluster);
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ(*found, sharding);
  }
}

TEST_P(ShardedPlan, LowersAsItsSharding) {
  const graph::Graph& graph = read_graph(GetParam());
  const cluster::Cluster cluster = four_devices();
  const Sharding sharding = draw(graph, 1);
  const plan::Plan plan = make_plan(graph, sharding, cluster);
  auto program = lower(graph, plan, cluster);
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_EQ(program->model_hash, "aa");
  EXPECT_EQ(program->plan_hash, hash_hex(plan::print_plan(plan, cluster)));
  const std::vector<plan::Member> members = plan::members(plan);
  ASSERT_EQ(program->devices.size(), members.size());
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    EXPECT_EQ(program->devices[rank].device, cluster.device(members[rank].device).name);
    EXPECT_EQ(program->devices[rank].samples, members[rank].samples);
  }
  program->model_hash = program->plan_hash = "";
  EXPECT_EQ(*program, *lower_sharded(graph, sharding, {}));
}

INSTANTIATE_TEST_SUITE_P(Models, ShardedPlan, ::testing::Values("mlp", "cnn", "gpt"),
                         [](const auto& info) { return info.param; });

/// Returns the error after changing a plan for the MLP that splits nothing.
Error error_after(const std::function<void(plan::Region&)>& change) {
  const graph::Graph& graph = read_graph("mlp");
  const cluster::Cluster cluster = four_devices();
  Sharding sharding = draw(graph, 0);
  for (std::size_t i = 0; i < graph.ops.size(); ++i)
    sharding.ops[i] = whole_strategy(find_rules(graph, sharding.batch)[i]);
  for (const ValueId id : values_with_role(graph, graph::ValueRole::kParameter))
    sharding.sources[id.index()] = graph::kWholeForm;
  plan::Plan plan = make_plan(graph, sharding, cluster);
  EXPECT_TRUE(find_sharding(graph, plan, cluster));
  change(plan.replicas[0].regions[0]);
  const auto found = find_sharding(graph, plan, cluster);
  EXPECT_FALSE(found);
  return found ? Error{} : found.error();
}

TEST(ShardedPlanErrors, OfAnotherModelAreStale) {
  const Error error = error_after([](plan::Region& region) { region.operators.pop_back(); });
  EXPECT_EQ(error.kind, ErrorKind::kStale);
  const std::size_t ops = read_graph("mlp").ops.size();
  EXPECT_EQ(error.message, fmt::format("plan: it splits {} operators, the model has {}; plan again",
                                       ops - 1, ops));
}

TEST(ShardedPlanErrors, NameTheOperator) {
  for (const char* text : {"factor 99", "factor 0: 999999*_*1", "terms 99"}) {
    const Error error =
        error_after([&](plan::Region& region) { region.operators[1] = *plan::parse_split(text); });
    EXPECT_EQ(error.kind, ErrorKind::kStale);
    EXPECT_THAT(error.message,
                StartsWith(fmt::format("plan: operator 1, {} in module '{}', cannot be split as "
                                       "'{}'; its rule is ",
                                       read_graph("mlp").ops[1].full_name(),
                                       read_graph("mlp").ops[1].module, text)));
  }
}

TEST(ShardedPlanErrors, NameTheParameter) {
  const auto keep = [](const std::string& name, const graph::Form& form) {
    return error_after([&](plan::Region& region) { region.parameters = {{name, form}}; }).message;
  };
  EXPECT_EQ(keep("nobody", {graph::FormKind::kSharded, 0, 1, 4, 1}),
            "plan: the model has no parameter 'nobody'; plan again");
  const std::string name =
      read_graph("mlp")
          .value(values_with_role(read_graph("mlp"), graph::ValueRole::kParameter)[0])
          .name;
  EXPECT_EQ(keep(name, {graph::FormKind::kSharded, 0, 1, 12345, 1}),
            fmt::format("plan: parameter '{}' cannot be cut as S(0: 12345); plan again", name));
  EXPECT_EQ(keep(name, {graph::FormKind::kSharded, 7, 1, 4, 1}),
            fmt::format("plan: parameter '{}' cannot be cut as S(7: 4); plan again", name));
}

// Any split of the small MLP's operators over unequal devices gives the step of one device.
TEST(DrawnShardings, GiveTheStepOfOneDevice) {
  const auto graph =
      graph::parse_graph(read_text(testing::source_path("tests/golden/graph/mlp.txt")), "mlp");
  ASSERT_TRUE(graph) << graph.error().message;
  for (std::uint64_t seed = 0; seed < testing::rounds(40, 1000); ++seed) {
    SCOPED_TRACE(seed);
    Sharding sharding = draw(*graph, seed);
    sharding.micro_batches = 1 + static_cast<std::int64_t>(seed % 3);
    LowerOptions options;
    options.bucket_bytes = Bytes(seed % 2 == 0 ? 256 : 1 << 20);
    const auto program = lower_sharded(*graph, sharding, options);
    ASSERT_TRUE(program) << program.error().message;
    testing::expect_runs_as(*program, *graph, seed);
  }
}

}  // namespace
}  // namespace motley::synth
