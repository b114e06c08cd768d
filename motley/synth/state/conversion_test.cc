#include "motley/synth/step/conversion.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "motley/graph/graph_text.h"
#include "motley/program/program_text.h"
#include "motley/synth/ranks/lower_sharded.h"
#include "motley/testing/run_program.h"

namespace motley::synth {
namespace {

using graph::Form;
using graph::FormKind;
using graph::kPartialForm;
using graph::kWholeForm;

constexpr std::int64_t kRows = 6, kColumns = 4, kFloat = 4;
const Form kByRows{FormKind::kSharded, 0, 1, kRows, 1};
const Form kByColumns{FormKind::kSharded, 1, 1, kColumns, 1};
/// Rows as three blocks of two: each device has one row of each block.
const Form kByBlocks{FormKind::kSharded, 0, 3, 2, 1};

/// %1 = neg of a parameter, %2 = neg of %1, with the conversion in between.
graph::Graph two_operators() {
  auto graph = graph::parse_graph(R"(motley.graph/1
name "two"
size batch 1 4096
param %0: f32[6, 4] "w"
op %1: f32[6, 4] = aten::neg(%0) fwd "a"
op %2: f32[6, 4] = aten::neg(%1) fwd "b"
op %3: f32[] = aten::sum(%2, none) fwd "c"
output loss %3
)",
                                  "two");
  EXPECT_TRUE(graph) << graph.error().message;
  return *std::move(graph);
}

graph::Strategy in_form(const graph::ShardingRule& rule, const Form& form) {
  if (form == kWholeForm) return whole_strategy(rule);
  if (form == kPartialForm) return linear_strategies(rule).front();
  return *follow(rule, 0, form);
}

struct Change {
  std::vector<std::string> ops;  ///< of the conversion, on one rank
  double bytes = 0;              ///< read and written by its copies
};

/// Returns what rank 1 of two equal devices runs between the operators.
Change lower_change(const Form& from, const Form& to) {
  const graph::Graph graph = two_operators();
  const std::vector<graph::ShardingRule> rules = find_rules(graph, 1);
  Sharding sharding;
  sharding.devices = {"0", "1"};
  sharding.shares = {1, 1};
  sharding.batch = 1;
  sharding.sources.assign(graph.values.size(), kWholeForm);
  sharding.sources[0] = from;
  sharding.ops = {in_form(rules[0], from), in_form(rules[1], to), whole_strategy(rules[2])};
  const program::Program program = lower_some_ranks(graph, sharding, rules, {1}, {});
  const program::DeviceProgram& device = program.devices[0];
  Change run;
  std::size_t first = 0, last = 0;
  for (std::size_t i = 0; i < device.instructions.size(); ++i) {
    if (device.instructions[i].origin == OpId(0)) first = i;
    if (device.instructions[i].origin == OpId(1)) last = i;
  }
  for (std::size_t i = first + 1; i < last; ++i) {
    const program::Instruction& each = device.instructions[i];
    if (each.op == "motley::unpack") continue;  // a view of parts that are already in place
    run.ops.push_back(each.op);
    if (each.lane == Lane::kTransfer) continue;
    run.bytes += static_cast<double>(device.buffer(each.outputs[0]).bytes().value);
    if (each.op == "aten::zeros_like") continue;  // reads nothing
    // A copy of a part reads no more of the whole than it writes.
    BufferId read;
    program::for_each_buffer(each.arguments, [&](BufferId id) { read = id; });
    run.bytes += static_cast<double>(
        device.buffer(each.op == "motley::part" ? each.outputs[0] : read).bytes().value);
  }
  return run;
}

/// The same from find_conversions, for a device that has half of everything that is cut.
Change describe_change(const Form& from, const Form& to) {
  Change run;
  const auto add = [&](const LocalCopy& copy) {
    if (copy.op.empty()) return;
    run.ops.emplace_back(copy.op);
    const double whole = kRows * kColumns * kFloat;
    run.bytes += copy.times * (copy.of.kind == FormKind::kSharded ? whole / 2 : whole);
  };
  for (const Conversion& step : find_conversions({kRows, kColumns}, from, to)) {
    add(step.before);
    if (!step.exchange.empty()) run.ops.emplace_back(step.exchange);
    add(step.after);
  }
  return run;
}

TEST(Conversion, IsWhatIsLowered) {
  const std::vector<Form> forms = {kWholeForm, kPartialForm, kByRows, kByColumns, kByBlocks};
  for (const Form& from : forms)
    for (const Form& to : forms) {
      const Change lowered = lower_change(from, to), described = describe_change(from, to);
      const std::string name = print_form(from) + " to " + print_form(to);
      EXPECT_EQ(lowered.ops, described.ops) << name;
      EXPECT_EQ(lowered.bytes, described.bytes) << name;
    }
}

TEST(Conversion, OfOneDimensionGoesOverWhole) {
  EXPECT_TRUE(goes_over_whole(kByRows, kByBlocks));
  EXPECT_TRUE(goes_over_whole(kByRows, kPartialForm));
  EXPECT_FALSE(goes_over_whole(kByRows, kByColumns));
  EXPECT_FALSE(goes_over_whole(kByRows, kWholeForm));
  EXPECT_FALSE(goes_over_whole(kPartialForm, kByRows));
  EXPECT_FALSE(goes_over_whole(kWholeForm, kByRows));
}

// %2 in one form becomes %3 in another, then whole, with a different number per element. The
// devices are uneven; one has no part of what is cut.
TEST(Conversion, KeepsEveryElementInItsPlace) {
  auto graph = graph::parse_graph(R"(motley.graph/1
name "moved"
size batch 1 4096
param %0: f32[6, 4] "w"
param %1: f32[6, 4] "c"
op %2: f32[6, 4] = aten::neg(%0) fwd "a"
op %3: f32[6, 4] = aten::neg(%2) fwd "b"
op %4: f32[6, 4] = aten::mul.Tensor(%3, %1) fwd "c"
op %5: f32[] = aten::sum(%4, none) fwd "c"
output loss %5
output gradient %4 of "w"
)",
                                  "moved");
  ASSERT_TRUE(graph) << graph.error().message;
  const std::vector<graph::ShardingRule> rules = find_rules(*graph, 1);
  const std::vector<Form> forms = {kWholeForm, kPartialForm, kByRows, kByColumns, kByBlocks};
  for (const std::vector<double>& shares : {std::vector<double>{1, 1}, {3, 1}, {1, 0, 2}})
    for (const Form& from : forms)
      for (const Form& to : forms) {
        SCOPED_TRACE(print_form(from) + " to " + print_form(to));
        Sharding sharding;
        sharding.shares = shares;
        for (std::size_t i = 0; i < shares.size(); ++i)
          sharding.devices.push_back(std::to_string(i));
        sharding.batch = 1;
        sharding.sources.assign(graph->values.size(), kWholeForm);
        if (from.kind == FormKind::kSharded) sharding.sources[0] = from;
        sharding.ops = {in_form(rules[0], from), in_form(rules[1], to), whole_strategy(rules[2]),
                        whole_strategy(rules[3])};
        const auto program = lower_sharded(*graph, sharding, {});
        ASSERT_TRUE(program) << program.error().message;
        testing::expect_runs_as(*program, *graph, 7);
      }
}

}  // namespace
}  // namespace motley::synth
