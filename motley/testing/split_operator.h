#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "motley/graph/graph_text.h"
#include "motley/program/program_text.h"
#include "motley/synth/ranks/lower_operator.h"
#include "motley/synth/ranks/lower_sharded.h"
#include "motley/synth/ranks/sample_sharding.h"
#include "motley/synth/ranks/sharding_rules.h"

namespace motley::synth {

/// Makes a graph of these values and operators; the loss sums the last operator's first result.
/// Example: "param %0: f32[4] \"w\"\nop %1: f32[4] = aten::neg(%0) fwd \"\"\n".
inline graph::Graph small_graph(const std::string& lines) {
  int next = 0;  // only in definitions a colon follows an id
  std::string loss;
  for (std::size_t at = lines.find('%'); at != std::string::npos; at = lines.find('%', at + 1)) {
    const std::size_t end = lines.find_first_not_of("0123456789", at + 1);
    if (end == std::string::npos || lines[end] != ':') continue;
    if (at >= 3 && lines.compare(at - 3, 3, "op ") == 0) loss = lines.substr(at, end - at);
    ++next;
  }
  auto graph = graph::parse_graph(
      "motley.graph/1\nname \"small\"\nsize batch 1 4096\n" + lines +
          fmt::format("op %{0}: f32[] = aten::sum({1}, none) fwd \"\"\noutput loss %{0}\n", next,
                      loss),
      "small");
  EXPECT_TRUE(graph) << graph.error().message;
  return *std::move(graph);
}

/// The tensor of an operator that is cut, and where: dimension `dim` as [outer, extent, inner].
struct Cut {
  enum class Of { kOperand, kResult } of = Of::kOperand;
  int which = 0, dim = 0;
  std::int64_t extent = 0, outer = 1, inner = 1;
};

/// Finds the operator's strategy with that cut; fails if there is none.
inline graph::Strategy strategy_of(const graph::Graph& graph, OpId op, const Cut& cut,
                                   std::int64_t batch = 1) {
  const graph::ShardingRule rule = graph::find_rule_or_whole(graph, op, {{"batch", batch}});
  const graph::Form form{graph::FormKind::kSharded, cut.dim, cut.outer, cut.extent, cut.inner};
  const auto found = cut.of == Cut::Of::kOperand ? follow(rule, cut.which, form)
                                                 : follow_result(rule, cut.which, form);
  EXPECT_TRUE(found) << print_rule(rule);
  return found.value_or(whole_strategy(rule));
}

/// What one rank runs of an operator: instructions without their tensor arguments,
/// "aten::sub.Scalar(number(3), 1) i64[4]", and exchanges, "motley::all_reduce 48".
struct SplitLines {
  std::vector<std::string> instructions, exchanges;
};

inline SplitLines lines_of(const LoweredOperator& lowered) {
  SplitLines lines;
  const program::DeviceProgram& device = lowered.ranks.front();
  for (const program::Instruction& each : device.instructions) {
    std::string arguments;
    for (const program::Argument& argument : each.arguments) {
      if (std::holds_alternative<BufferId>(argument.value)) continue;
      if (std::holds_alternative<NoneArgument>(argument.value)) continue;
      arguments += (arguments.empty() ? "" : ", ") + program::print_argument(argument);
    }
    std::string& text = lines.instructions.emplace_back(each.full_name());
    if (!arguments.empty()) text += "(" + arguments + ")";
    for (const BufferId output : each.outputs) {
      const program::Buffer& buffer = device.buffer(output);
      text += fmt::format(" {}[{}]", dtype_name(buffer.dtype), fmt::join(buffer.shape, ", "));
    }
  }
  for (const InnerExchange& each : lowered.exchanges)
    lines.exchanges.push_back(fmt::format("{} {}", each.op, each.bytes.value));
  return lines;
}

/// Lowers the graph's first operator on devices of these shares, for one rank.
inline SplitLines split_first(const graph::Graph& graph, const Cut& cut,
                              const std::vector<double>& shares, std::size_t rank,
                              std::int64_t batch = 1) {
  return lines_of(lower_operator(graph, OpId(0), strategy_of(graph, OpId(0), cut, batch), batch,
                                 shares, {rank}));
}

/// Lowers one rank of a step with samples spread by `sharding`, which needs only shares and batch.
inline program::DeviceProgram lower_samples(const graph::Graph& graph, Sharding sharding,
                                            std::size_t rank, const LowerOptions& options = {}) {
  sharding.devices.resize(sharding.shares.size());
  const std::vector<graph::ShardingRule> rules =
      spread_samples(graph, sharding, options.batch_norm);
  auto program = lower_ranks(graph, sharding, rules, {rank}, options);
  EXPECT_TRUE(program) << program.error().message;
  return program ? std::move(program->devices.front()) : program::DeviceProgram{};
}

}  // namespace motley::synth
