#include "motley/synth/exchange_methods.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>

#include "motley/program/parts.h"
#include "motley/program/program_text.h"
#include "motley/testing/golden.h"

namespace motley::synth {
namespace {

/// Parameters in parts: all-gathers and reduce-scatters, and an all-reduce of the loss.
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
  ExchangeMethods methods;
  for (const std::string& op : exchange_operators(program))
    methods.push_back(op == program::kAllGather       ? ExchangeMethod::kGrouped
                      : op == program::kReduceScatter ? ExchangeMethod::kPadded
                                                      : ExchangeMethod::kNative);
  const auto before = count_names(program);
  ASSERT_TRUE(set_methods(program, methods));
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

TEST(ExchangeMethods, AnotherNumberOfExchangesIsStale) {
  program::Program program = mlp();
  const std::size_t found = exchange_operators(program).size();
  const auto refused = set_methods(program, {ExchangeMethod::kNative});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "the plan says how 1 exchanges are carried out, its program has " +
                std::to_string(found) + "; plan again");
}

TEST(ExchangeMethods, AnAllReduceIsNotPadded) {
  program::Program program = mlp();
  const auto operators = exchange_operators(program);
  const auto sum = std::find(operators.begin(), operators.end(), program::kAllReduce);
  ASSERT_NE(sum, operators.end());
  ExchangeMethods methods(operators.size(), ExchangeMethod::kNative);
  const auto place = static_cast<std::size_t>(sum - operators.begin());
  methods[place] = ExchangeMethod::kPadded;
  const auto refused = set_methods(program, methods);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "exchange " + std::to_string(place) +
                                         " of the plan is padded, which motley::all_reduce cannot "
                                         "be");
}

TEST(ExchangeMethods, TheQuickestIsChosenForWhatItMoves) {
  // All ways take a second a byte. Of two members the larger part moves, in any way.
  const auto per_byte = [](std::string_view, double bytes) { return bytes; };
  EXPECT_TRUE(choose_methods(mlp(), per_byte).empty());
  // Of parts 6 : 1 : 1 the largest goes to two others (12/8), or all but one is passed on (7/8).
  const program::Program skewed =
      lower_spread(read_graph("mlp"), {6, 1, 1}, Kept::kInParts, Bytes(4 << 20));
  const ExchangeMethods chosen = choose_methods(skewed, per_byte);
  const auto operators = exchange_operators(skewed);
  ASSERT_EQ(chosen.size(), operators.size());
  for (std::size_t i = 0; i < chosen.size(); ++i)
    EXPECT_EQ(chosen[i], operators[i] == program::kAllReduce ? ExchangeMethod::kNative
                                                             : ExchangeMethod::kGrouped);
  // Not where it cannot be done, nor for half a percent.
  const auto unknown = [](std::string_view name, double bytes) {
    return name.ends_with(".grouped") ? std::numeric_limits<double>::infinity() : bytes;
  };
  EXPECT_TRUE(choose_methods(skewed, unknown).empty());
  const auto alike = [](std::string_view name, double) {
    return name.ends_with(".grouped") ? 0.995 : 1.0;
  };
  EXPECT_TRUE(choose_methods(skewed, alike).empty());
}

}  // namespace
}  // namespace motley::synth
