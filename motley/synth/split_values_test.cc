// Checks that split operators, run in parts and joined, give the whole operator's results.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "motley/synth/ranks/lower_sharded.h"
#include "motley/testing/golden.h"
#include "motley/testing/run_program.h"

namespace motley::synth {
namespace {

/// An operator; weighing each element of its first result makes the position of elements matter.
struct SplitCase {
  std::string sources, result, call;
  int next = 0;             ///< the first free id
  std::string others = {};  ///< its other results: ", %3: f32[]"; their ids come after its own
};

graph::Graph graph_of(const SplitCase& each) {
  const auto others = static_cast<int>(std::count(each.others.begin(), each.others.end(), '%'));
  const std::string text = fmt::format(
      "motley.graph/1\nname \"s\"\nsize batch 1 64\n{0}param %{2}: {1} \"of each\"\n"
      "op %{3}: {1}{7} = {4} fwd \"\"\nop %{5}: {1} = aten::mul.Tensor(%{3}, %{2}) fwd \"\"\n"
      "op %{6}: f32[] = aten::sum(%{5}, none) fwd \"\"\noutput loss %{6}\n",
      each.sources, each.result, each.next, each.next + 1, each.call, each.next + 2 + others,
      each.next + 3 + others, each.others);
  auto graph = graph::parse_graph(text, "s");
  EXPECT_TRUE(graph) << graph.error().message << text;
  return *std::move(graph);
}

/// Returns every split of an operator that lowering has, with inner cuts by two and three.
std::vector<graph::Strategy> all_ways(const graph::Graph& graph, const graph::ShardingRule& rule,
                                      const std::vector<double>& shares) {
  std::vector<graph::Strategy> ways = linear_strategies(rule);
  for (std::size_t f = 0; f < rule.factors.size(); ++f)
    for (const std::int64_t outer : {1, 2, 3})
      for (const std::int64_t inner : {1, 2, 3})
        if (auto way = split_strategy(rule, static_cast<int>(f), outer, inner))
          ways.push_back(*std::move(way));
  std::erase_if(ways, [&](const graph::Strategy& way) {
    return !can_lower(graph, OpId(0), rule, way, shares);
  });
  return ways;
}

/// Returns how many strategies were run.
int run_all_ways(const SplitCase& each) {
  const graph::Graph graph = graph_of(each);
  const std::vector<graph::ShardingRule> rules = find_rules(graph, 1);
  int run = 0;
  for (const std::vector<double>& shares : {std::vector<double>{2, 1}, {1, 0, 3}})
    for (const graph::Strategy& way : all_ways(graph, rules[0], shares)) {
      SCOPED_TRACE(fmt::format("{}, factor {} of {}, cut {} {}, {} devices", each.call, way.factor,
                               print_rule(rules[0]), way.outer, way.inner, shares.size()));
      Sharding sharding;
      sharding.shares = shares;
      for (std::size_t i = 0; i < shares.size(); ++i) sharding.devices.push_back(std::to_string(i));
      sharding.batch = 1;
      sharding.sources.assign(graph.values.size(), graph::kWholeForm);
      sharding.ops = {way, whole_strategy(rules[1]), whole_strategy(rules[2])};
      const auto program = lower_sharded(graph, sharding, {});
      EXPECT_TRUE(program) << program.error().message;
      if (program) testing::expect_runs_as(*program, graph, 11);
      ++run;
    }
  return run;
}

constexpr const char* kX = "param %0: f32[6, 4] \"x\"\n";
constexpr const char* kXY = "param %0: f32[6, 4] \"x\"\nparam %1: f32[6, 4] \"y\"\n";

TEST(SplitValues, OfArithmetic) {
  EXPECT_GT(run_all_ways({kX, "f32[6, 4]", "aten::relu(%0)", 1}), 8);
  EXPECT_GT(run_all_ways({kXY, "f32[6, 4]", "aten::add.Tensor(%0, %1, 2)", 2}), 8);
  EXPECT_GT(run_all_ways({kXY, "f32[6, 4]", "aten::mul.Tensor(%0, %1)", 2}), 8);
  EXPECT_GT(run_all_ways({"param %0: f32[6, 4] \"x\"\nparam %1: f32[4] \"y\"\n", "f32[6, 4]",
                          "aten::sub.Tensor(%0, %1, 1)", 2}),
            8);
}

TEST(SplitValues, OfViewsAndJoins) {
  EXPECT_GT(run_all_ways({kX, "f32[4, 6]", "aten::t(%0)", 1}), 8);
  EXPECT_GT(run_all_ways({kX, "f32[2, 3, 4]", "aten::view(%0, [2, 3, 4])", 1}), 4);
  EXPECT_GT(run_all_ways({kX, "f32[24]", "aten::view(%0, [24])", 1}), 4);
  EXPECT_GT(run_all_ways({kXY, "f32[6, 8]", "aten::cat([%0, %1], 1)", 2}), 4);
  EXPECT_GT(run_all_ways({kXY, "f32[2, 6, 4]", "aten::stack([%0, %1], 0)", 2}), 8);
  EXPECT_GT(run_all_ways({kX, "f32[4]", "aten::select.int(%0, 0, 5)", 1}), 2);
  EXPECT_GT(run_all_ways({kX, "f32[3, 6, 4]", "aten::expand(%0, [3, 6, 4], false)", 1}), 8);
}

TEST(SplitValues, OfProductsAndSums) {
  const char* factors = "param %0: f32[6, 4] \"x\"\nparam %1: f32[4, 9] \"y\"\n";
  EXPECT_GT(run_all_ways({factors, "f32[6, 9]", "aten::mm(%0, %1)", 2}), 12);
  EXPECT_GT(run_all_ways({"param %0: f32[9] \"b\"\nparam %1: f32[6, 4] \"x\"\n"
                          "param %2: f32[4, 9] \"y\"\n",
                          "f32[6, 9]", "aten::addmm(%0, %1, %2, 1, 1)", 3}),
            12);
  EXPECT_GT(run_all_ways({kX, "f32[]", "aten::sum(%0, none)", 1}), 4);
  EXPECT_GT(run_all_ways({kX, "f32[]", "aten::mean(%0, none)", 1}), 4);
  EXPECT_GT(run_all_ways({kX, "f32[6, 1]", "aten::sum.dim_IntList(%0, [-1], true, none)", 1}), 8);
}

TEST(SplitValues, OfVariances) {
  EXPECT_GT(run_all_ways({kX, "f32[4]", "aten::var.correction(%0, [0], 1, false)", 1}), 8);
  EXPECT_GT(run_all_ways({kX, "f32[6, 1]", "aten::var.correction(%0, [1], 0, true)", 1}), 8);
  EXPECT_GT(run_all_ways({kX, "f32[6]", "aten::std.correction(%0, [-1], 2, false)", 1}), 8);
  EXPECT_GT(run_all_ways({kX, "f32[1, 1]", "aten::var.correction(%0, [0, 1], 1, true)", 1}), 8);
}

// Rows in parts, or classes in parts, so that no device has the maximum or the sum.
TEST(SplitValues, OfSoftmaxes) {
  EXPECT_GT(run_all_ways({kX, "f32[6, 4]", "aten::_log_softmax(%0, 1, false)", 1}), 8);
  EXPECT_GT(run_all_ways(
                {kXY, "f32[6, 4]", "aten::_log_softmax_backward_data(%0, %1, 1, dtype(f32))", 2}),
            8);
}

// Sums and means, weighted and not, with samples or classes in parts.
TEST(SplitValues, OfLosses) {
  const std::string labelled = std::string(kX) + "constant %1: i64[6] \"labels\"\n";
  const std::string weighed = labelled + "param %2: f32[4] \"weights\"\n";
  for (const char* how : {"1, 2", "2, 2", "1, -100"}) {
    EXPECT_GT(run_all_ways({labelled, "f32[]",
                            fmt::format("aten::nll_loss_forward(%0, %1, none, {})", how), 2,
                            ", %4: f32[]"}),
              8);
    EXPECT_GT(
        run_all_ways({weighed, "f32[]", fmt::format("aten::nll_loss_forward(%0, %1, %2, {})", how),
                      3, ", %5: f32[]"}),
        8);
    EXPECT_GT(run_all_ways(
                  {weighed + "param %3: f32[] \"grad\"\nparam %4: f32[] \"total\"\n", "f32[6, 4]",
                   fmt::format("aten::nll_loss_backward(%3, %0, %1, %2, {}, %4)", how), 5}),
              8);
  }
}

TEST(SplitValues, OfLayerNorms) {
  const std::string sources =
      std::string(kX) + "param %1: f32[4] \"weight\"\nparam %2: f32[4] \"bias\"\n";
  EXPECT_GT(run_all_ways({sources, "f32[6, 4]", "aten::native_layer_norm(%0, [4], %1, %2, 1e-05)",
                          3, ", %5: f32[6, 1], %6: f32[6, 1]"}),
            8);
}

}  // namespace
}  // namespace motley::synth
