#include "motley/synth/ranks/lower_sharded.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "motley/program/program_text.h"
#include "motley/testing/golden.h"
#include "motley/testing/places.h"
#include "motley/testing/run_program.h"

namespace motley::synth {
namespace {

using program::Instruction;

std::vector<Instruction> named(const program::DeviceProgram& device, const std::string& op) {
  std::vector<Instruction> found;
  for (const Instruction& instruction : device.instructions)
    if (instruction.op == op) found.push_back(instruction);
  return found;
}

TEST(LowerSharded, GoldenOfParametersInParts) {
  const std::string text = program::print_program(
      lower_spread(read_graph("mlp"), {3, 1}, Kept::kInParts, Bytes(4 << 20)));
  expect_golden("mlp.kept", text);
}

TEST(LowerSharded, GathersOneBucketAhead) {
  const program::Program program =
      lower_spread(read_graph("gpt"), {3, 1}, Kept::kInParts, Bytes(4096));
  std::vector<std::size_t> begun, used;  // by bucket of parameters: its transfer, its unpacking
  const std::vector<Instruction>& all = program.devices[0].instructions;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i].label.starts_with("parameters ")) continue;
    if (all[i].op == "motley::all_gather") begun.push_back(i);
    if (all[i].op == "motley::unpack") used.push_back(i);
  }
  ASSERT_EQ(begun.size(), used.size());
  ASSERT_GT(begun.size(), 5U);
  for (std::size_t k = 0; k + 1 < begun.size(); ++k) EXPECT_LT(begun[k + 1], used[k]) << k;
  // Not all start at once: each waits until the one before last is used.
  for (std::size_t k = 2; k < begun.size(); ++k) EXPECT_GT(begun[k], used[k - 2]) << k;
}

TEST(LowerSharded, EachBucketLeavesBeforeTheBackwardPassIsOver) {
  const program::Program program =
      lower_spread(read_graph("gpt"), {3, 1}, Kept::kInParts, Bytes(16384));
  const std::vector<Instruction>& all = program.devices[0].instructions;
  std::size_t last_operator = 0, first = all.size();
  int scattered = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i].origin.is_none()) last_operator = i;
    if (all[i].op != "motley::reduce_scatter") continue;
    first = std::min(first, i);
    ++scattered;
  }
  EXPECT_GT(scattered, 3);
  EXPECT_LT(first, last_operator);
  EXPECT_EQ(named(program.devices[0], "motley::update").size(),
            static_cast<std::size_t>(scattered));
}

/// x [batch, 4] split by samples, a weight [4], their product, sorted, and its sum.
graph::Graph sorted_product() {
  auto graph = graph::parse_graph(R"(motley.graph/1
name "g"
size batch 1 4096
input %0: f32[batch, 4] "x"
param %1: f32[4] "w"
op %2: f32[batch, 4] = aten::mul.Tensor(%0, %1) fwd "mix"
op %3: f32[batch, 4], %4: i64[batch, 4] = aten::sort(%2, 1, false) fwd "rank"
op %5: f32[] = aten::sum(%3, none) fwd ""
output loss %5
)",
                                  "g");
  EXPECT_TRUE(graph) << graph.error().message;
  return *std::move(graph);
}

Sharding spread_over_two(const graph::Graph& graph) {
  Sharding sharding;
  sharding.devices = {"a:0", "a:1"};
  sharding.shares = {1, 1};
  sharding.batch = 8;
  spread_samples(graph, sharding);
  return sharding;
}

Error error_of(const graph::Graph& graph, const Sharding& sharding) {
  const auto program = lower_sharded(graph, sharding, {});
  EXPECT_FALSE(program);
  return program ? Error{} : program.error();
}

TEST(LowerSharded, RefusesASharingOfAnotherGraph) {
  const graph::Graph graph = sorted_product();
  const Sharding sound = spread_over_two(graph);
  ASSERT_TRUE(lower_sharded(graph, sound, {}));
  for (int what = 0; what < 4; ++what) {
    Sharding sharding = sound;
    if (what == 0) sharding.ops.pop_back();
    if (what == 1) sharding.sources.pop_back();
    if (what == 2) sharding.shares.push_back(1);
    if (what == 3) sharding.devices = {};
    const Error error = error_of(graph, sharding);
    EXPECT_EQ(error.code, "synth.sharding") << what;
    EXPECT_EQ(error.message, "g: the sharding is not of this graph") << what;
  }
}

// Another operator's strategy, a missing factor, and one that cannot be cut into whole parts.
TEST(LowerSharded, NamesTheOperatorThatCannotBeSplitSo) {
  const graph::Graph graph = sorted_product();
  const Sharding sound = spread_over_two(graph);
  for (int what = 0; what < 4; ++what) {
    Sharding sharding = sound;
    graph::Strategy& way = sharding.ops[0];
    if (what == 0) way = sound.ops[2];
    if (what == 1) way.factor = 2;
    if (what == 2) way.outer = 3;
    if (what == 3) way.inner = 0;
    EXPECT_EQ(error_of(graph, sharding).message,
              "g: operator aten::mul.Tensor in module 'mix' cannot be split so; its rule is "
              "(a b) (b) -> (a b)")
        << what;
  }
}

// Ranks 0 and 2 have 3 of 8 samples, 1 and 3 one. The largest share keeps whatever counts once, but
// nothing here does. Devices with different times are kinds of their own.
TEST(LowerSharded, IdenticalRanksAreLoweredOnce) {
  const graph::Graph graph = sorted_product();
  Sharding sharding;
  sharding.devices = {"a:0", "a:1", "a:2", "a:3"};
  sharding.shares = {3, 1, 3, 1};
  sharding.batch = 8;
  const auto rules = spread_samples(graph, sharding);
  const RankKinds kinds = lower_kinds(graph, sharding, rules, {0, 0, 0, 0}, {});
  EXPECT_EQ(kinds.of_rank, (std::vector<std::size_t>{0, 1, 0, 1}));
  ASSERT_EQ(kinds.program.devices.size(), 2u);
  EXPECT_EQ(kinds.program.devices[1].device, "a:1");
  EXPECT_EQ(kinds.program.devices[1].samples, 1);
  EXPECT_EQ(lower_kinds(graph, sharding, rules, {0, 0, 0, 1}, {}).of_rank,
            (std::vector<std::size_t>{0, 1, 0, 2}));
}

/// The small MLP that other tests plan: 12 features, 32 hidden, 5 classes.
TEST(LowerSharded, AStepOfTheMlpIsThatOfOneDevice) {
  const auto graph =
      graph::parse_graph(read_text(testing::source_path("tests/golden/graph/mlp.txt")), "mlp");
  ASSERT_TRUE(graph) << graph.error().message;
  for (const std::vector<std::int64_t>& samples :
       {std::vector<std::int64_t>{6, 0}, {4, 2}, {1, 0, 5}, {2, 2, 1, 1}})
    for (const Kept kept : {Kept::kWhole, Kept::kInParts})
      for (const std::int64_t bytes : {256, 1 << 20}) {
        SCOPED_TRACE(::testing::PrintToString(samples));
        testing::expect_runs_as(lower_spread(*graph, samples, kept, Bytes(bytes)), *graph, 9);
      }
}

}  // namespace
}  // namespace motley::synth
