#include "motley/synth/ranks/exchange_methods.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>

#include "motley/program/parts.h"
#include "motley/program/program_text.h"
#include "motley/testing/golden.h"

namespace motley::synth {
namespace {

/// Sharded parameters: all-gathers and reduce-scatters, and an all-reduce of the loss.
program::Program mlp() {
  return lower_spread(read_graph("mlp"), {3, 1}, Kept::kInParts, Bytes(4 << 20));
}

std::map<std::string, int> count_names(const program::Program& program) {
  std::map<std::string, int> counts;
  for (const program::Instruction& instruction : program.devices[0].instructions)
    if (program::is_collective(instruction.op)) ++counts[instruction.full_name()];
  return counts;
}

TEST(ExchangeMethods, EachExchangeIsCarriedOutAsThePlanSays) {
  program::Program program = mlp();
  ExchangeWays ways = find_exchange_kinds(program);
  for (plan::ExchangeWay& way : ways)
    way.method = way.op == program::kAllGather       ? ExchangeMethod::kGrouped
                 : way.op == program::kReduceScatter ? ExchangeMethod::kPadded
                                                     : ExchangeMethod::kNative;
  const auto before = count_names(program);
  ASSERT_TRUE(set_methods(program, ways));
  ASSERT_TRUE(program::verify_program(program, "p"));
  const auto after = count_names(program);
  EXPECT_EQ(after.at("motley::all_gather.grouped"), before.at("motley::all_gather"));
  EXPECT_EQ(after.at("motley::reduce_scatter.padded"), before.at("motley::reduce_scatter"));
  EXPECT_EQ(after.at("motley::all_reduce"), before.at("motley::all_reduce"));
  EXPECT_FALSE(after.contains("motley::all_gather"));
}

TEST(ExchangeMethods, NoneMeansNative) {
  program::Program program = mlp();
  ASSERT_TRUE(set_methods(program, {}));
  EXPECT_EQ(program, mlp());
}

TEST(ExchangeMethods, AKindHasItsOperatorItsBytesAndItsLargestPart) {
  // Rows in two parts, 3 : 1.
  const program::Program program = mlp();
  for (const plan::ExchangeWay& kind : find_exchange_kinds(program)) {
    EXPECT_EQ(kind.method, ExchangeMethod::kNative);
    const auto elements = static_cast<double>(kind.bytes.value) / 4;
    const double largest = kind.op == program::kAllReduce ? 1 : 0.75 * elements;
    EXPECT_NEAR(static_cast<double>(kind.largest), largest, 0.01 * elements);
  }
}

TEST(ExchangeMethods, AKindThatIsNotThereIsStale) {
  program::Program program = mlp();
  const auto refused =
      set_methods(program, {{"motley::all_gather", Bytes(12), 3, ExchangeMethod::kNative}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::kStale);
  EXPECT_EQ(refused.error().message,
            "the plan says how motley::all_gather of 12 bytes with parts of 3 is carried out, its "
            "program has none; plan again");
}

TEST(ExchangeMethods, AnAllReduceIsNotPadded) {
  program::Program program = mlp();
  ExchangeWays ways = find_exchange_kinds(program);
  std::erase_if(ways, [](const auto& way) { return way.op != program::kAllReduce; });
  ASSERT_FALSE(ways.empty());
  ways[0].method = ExchangeMethod::kPadded;
  const auto refused = set_methods(program, ways);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "motley::all_reduce of " + std::to_string(ways[0].bytes.value) +
                " bytes with parts of 1 of the plan is padded, which it cannot be");
}

TEST(ExchangeMethods, InCommonIsWhatBothCarryOutInTheSameWay) {
  const plan::ExchangeWay first{"a", Bytes(8), 1, ExchangeMethod::kGrouped};
  plan::ExchangeWay larger = first, padded = first;
  larger.bytes = Bytes(16);
  padded.method = ExchangeMethod::kPadded;
  EXPECT_EQ(common_ways({first, larger}, {first}), ExchangeWays{first});
  EXPECT_EQ(common_ways({first}, {padded, larger}), ExchangeWays{});
}

TEST(ExchangeMethods, TheFastestIsChosenForWhatItMoves) {
  // Every method takes a second per byte. With two members each method moves the larger part.
  const auto per_byte = [](std::string_view, double bytes) { return bytes; };
  EXPECT_TRUE(choose_methods(mlp(), per_byte).empty());
  // Parts 6 : 1 : 1: native sends the largest to two others (12/8), grouped passes on 7/8.
  const program::Program skewed =
      lower_spread(read_graph("mlp"), {6, 1, 1}, Kept::kInParts, Bytes(4 << 20));
  const ExchangeWays chosen = choose_methods(skewed, per_byte);
  for (const plan::ExchangeWay& kind : find_exchange_kinds(skewed)) {
    plan::ExchangeWay grouped = kind;
    grouped.method = ExchangeMethod::kGrouped;
    EXPECT_EQ(std::count(chosen.begin(), chosen.end(), grouped),
              kind.op == program::kAllReduce ? 0 : 1);
  }
  // Not if it is impossible, nor for half a percent.
  const auto unknown = [](std::string_view name, double bytes) {
    return name.ends_with(".grouped") ? std::numeric_limits<double>::infinity() : bytes;
  };
  EXPECT_TRUE(choose_methods(skewed, unknown).empty());
  const auto identical = [](std::string_view name, double) {
    return name.ends_with(".grouped") ? 0.995 : 1.0;
  };
  EXPECT_TRUE(choose_methods(skewed, identical).empty());
}

}  // namespace
}  // namespace motley::synth
