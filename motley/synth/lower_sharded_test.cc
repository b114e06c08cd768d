#include "motley/synth/lower_sharded.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "motley/program/program_text.h"
#include "motley/testing/golden.h"

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
  // And not all of them at the start: each waits until the one before last is used.
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

}  // namespace
}  // namespace motley::synth
