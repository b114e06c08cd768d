#include "motley/graph/rules/strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

/// addmm: (a) (b c) (c a) -> (b a) with a 5, b 4, c 6.
ShardingRule addmm() {
  ShardingRule rule;
  rule.factors = {{5}, {4}, {6}};
  rule.operands = {ValueId(0), ValueId(1), ValueId(2)};
  rule.operand_factors = {{{0}}, {{1}, {2}}, {{2}, {0}}};
  rule.result_factors = {{{1}, {0}}};
  rule.terms = {{1, 2}, {0}};
  return rule;
}

/// Returns the rule of a view of [3*12*64] as [3, 12, 64].
ShardingRule view() {
  ShardingRule rule;
  rule.factors = {{3}, {12}, {64}};
  rule.operands = {ValueId(0)};
  rule.operand_factors = {{{0, 1, 2}}};
  rule.result_factors = {{{0}, {1}, {2}}};
  rule.terms = {{0}};
  return rule;
}

std::vector<std::string> print(const std::vector<Form>& forms) {
  std::vector<std::string> text;
  for (const Form& form : forms) text.push_back(print_form(form));
  return text;
}

TEST(Strategy, SplitOfAContractionTakesTheBiasOnce) {
  const auto rows = split_strategy(addmm(), 1);
  ASSERT_TRUE(rows);
  EXPECT_THAT(print(rows->operands), ElementsAre("R", "S(0: 4)", "R"));
  EXPECT_THAT(print(rows->results), ElementsAre("S(0: 4)"));
  const auto contraction = split_strategy(addmm(), 2);
  ASSERT_TRUE(contraction);
  EXPECT_THAT(print(contraction->operands), ElementsAre("P", "S(1: 6)", "S(0: 6)"));
  EXPECT_THAT(print(contraction->results), ElementsAre("P"));
}

TEST(Strategy, LinearOnesTakeOneOperandOfEachTerm) {
  const auto ways = linear_strategies(addmm());
  ASSERT_THAT(ways, SizeIs(2));
  EXPECT_THAT(print(ways[0].operands), ElementsAre("P", "P", "R"));
  EXPECT_THAT(print(ways[1].operands), ElementsAre("P", "R", "P"));
  EXPECT_THAT(print(ways[1].results), ElementsAre("P"));
}

TEST(Strategy, FollowsAFormThroughAView) {
  // 12 heads within q, k and v.
  const Form heads{FormKind::kSharded, 0, 3, 12, 64};
  const auto found = follow(view(), 0, heads);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->factor, 1);
  EXPECT_THAT(print(found->results), ElementsAre("S(1: 12)"));
  EXPECT_EQ(found->operands[0], heads);
  // Blocks of 16 of each head: inside the factor.
  const Form blocks{FormKind::kSharded, 0, 36, 4, 16};
  const auto within = follow(view(), 0, blocks);
  ASSERT_TRUE(within);
  EXPECT_EQ(within->inner, 16);
  EXPECT_THAT(print(within->results), ElementsAre("S(2: 1*4*16)"));
  EXPECT_EQ(within->operands[0], blocks);
  // Pieces that cross heads.
  EXPECT_FALSE(follow(view(), 0, {FormKind::kSharded, 0, 1, 24, 96}));
  EXPECT_FALSE(follow(view(), 0, kPartialForm));
}

TEST(Strategy, SplitsWithinAFactorOnlyWhereItDivides) {
  EXPECT_TRUE(split_strategy(addmm(), 2, 2, 1));
  EXPECT_FALSE(split_strategy(addmm(), 2, 4, 1));
  ShardingRule rule = addmm();
  rule.factors[1].split = Split::kNever;
  EXPECT_FALSE(split_strategy(rule, 1));
}

TEST(Strategy, ResultsThatDoNotDependOnTheFactorAreWhole) {
  ShardingRule rule = addmm();
  rule.result_factors.push_back({{0}});
  rule.independent = {{1, 2}};
  EXPECT_THAT(print(split_strategy(rule, 2)->results), ElementsAre("P", "R"));
  EXPECT_THAT(print(split_strategy(rule, 1)->results), ElementsAre("S(0: 4)", "P"));
}

TEST(Form, TextReadsBack) {
  for (const Form& form : {kWholeForm, kPartialForm, Form{FormKind::kSharded, 1, 1, 12, 1},
                           Form{FormKind::kSharded, 0, 3, 12, 64}})
    EXPECT_EQ(parse_form(print_form(form)), form);
  for (const char* text : {"", "S", "Q", "S(0)", "S(-1: 4)", "S(0: 3*4)", "S(0: 0)", "S(0: 4) x",
                           "S(65: 4)", "S(0: 1*2*99999999999999999999)"})
    EXPECT_FALSE(parse_form(text)) << text;
}

TEST(Slab, CountsWhatLiesBeforeAndAfter) {
  EXPECT_EQ(slab_of({2, 3 * 12 * 64, 5}, {FormKind::kSharded, 1, 3, 12, 64}),
            (Slab{2 * 3, 12, 64 * 5}));
  EXPECT_EQ(slab_of({7}, {FormKind::kSharded, 0, 1, 7, 1}), (Slab{1, 7, 1}));
}

}  // namespace
}  // namespace motley::graph
