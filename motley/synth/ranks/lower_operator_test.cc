#include "motley/synth/ranks/lower_operator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "motley/program/program_text.h"
#include "motley/testing/golden.h"

namespace motley::synth {
namespace {

/// Returns an operator's instructions and results as text, in order.
std::vector<std::string> own_instructions(const program::DeviceProgram& device, OpId op) {
  std::vector<std::string> made;
  for (const program::Instruction& instruction : device.instructions) {
    if (instruction.origin != op || instruction.lane != Lane::kCompute) continue;
    std::string& text = made.emplace_back(instruction.full_name());
    for (const BufferId id : instruction.outputs)
      for (const std::int64_t size : device.buffer(id).shape) text += " " + std::to_string(size);
  }
  std::sort(made.begin(), made.end());
  return made;
}

TEST(LowerOperator, RunsWhatItRunsWithinAStep) {
  for (const char* model : {"mlp", "cnn", "gpt"}) {
    const graph::Graph& graph = read_graph(model);
    const std::vector<double> shares = {3, 1, 2};
    Sharding sharding;
    sharding.devices = {"a", "b", "c"};
    sharding.shares = shares;
    sharding.batch = 6;
    spread_samples(graph, sharding);
    const auto whole = lower_sharded(graph, sharding, {});
    ASSERT_TRUE(whole) << whole.error().message;
    int compared = 0;
    for (std::size_t i = 0; i < graph.ops.size(); ++i) {
      const OpId op(static_cast<std::int64_t>(i));
      const LoweredOperator alone =
          lower_operator(graph, op, sharding.ops[i], sharding.batch, shares, {2, 0});
      ASSERT_EQ(alone.ranks.size(), 2U);
      for (const auto& [rank, made] : {std::pair{2, &alone.ranks[0]}, {0, &alone.ranks[1]}}) {
        const auto within = own_instructions(whole->devices[static_cast<std::size_t>(rank)], op);
        if (within.empty()) continue;  // no output depends on it
        EXPECT_EQ(own_instructions(*made, OpId(0)), within)
            << model << " " << graph.op(op).full_name();
        ++compared;
      }
    }
    EXPECT_GT(compared, 20) << model;
  }
}

}  // namespace
}  // namespace motley::synth
