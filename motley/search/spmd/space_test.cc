#include "motley/search/spmd/space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/graph/graph_text.h"

namespace motley::search {
namespace {

using graph::Form;
using graph::FormKind;
using graph::kPartialForm;
using graph::kWholeForm;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

/// x [batch, 4] times w [4, 6], then an operator on it, %3, and its sum, the loss.
graph::Graph product_and(const std::string& op, const std::string& more = "") {
  auto graph = graph::parse_graph(
      "motley.graph/1\nname \"p\"\nsize batch 1 64\ninput %0: f32[batch, 4] \"x\"\n"
      "param %1: f32[4, 6] \"w\"\n"
      "op %2: f32[batch, 6] = aten::mm(%0, %1) fwd \"\"\n"
      "op %3: f32[batch, 6] = " +
          op +
          " fwd \"\"\n"
          "op %4: f32[] = aten::sum(%3, none) fwd \"\"\n" +
          more + "output loss %4\n",
      "p");
  EXPECT_TRUE(graph) << graph.error().message;
  return *std::move(graph);
}

Form cut(int dim, std::int64_t extent) { return {FormKind::kSharded, dim, 1, extent, 1}; }

/// Returns "S(0: 8) S(1: 4) -> P" for each way of an operator.
std::vector<std::string> ways_of(const SpmdSpace& space, std::size_t op) {
  std::vector<std::string> texts;
  for (const graph::Strategy& way : space.ways[op]) {
    std::string& text = texts.emplace_back();
    for (const Form& form : way.operands) text += print_form(form) + " ";
    text += "->";
    for (const Form& form : way.results) text += " " + print_form(form);
  }
  return texts;
}

// A product (a b) (b c) -> (a c) has three factors. The activation continues those that cut its
// operand: samples and columns. The sum over either gives terms.
TEST(SpmdSpace, HasAllWaysThatHangTogether) {
  const SpmdSpace space = find_space(product_and("aten::relu(%2)"), 8, {1, 1});
  EXPECT_THAT(ways_of(space, 0),
              UnorderedElementsAre("R R -> R", "S(0: 8) R -> S(0: 8)", "S(1: 4) S(0: 4) -> P",
                                   "R S(1: 6) -> S(1: 6)"));
  EXPECT_THAT(ways_of(space, 1),
              UnorderedElementsAre("R -> R", "S(0: 8) -> S(0: 8)", "S(1: 6) -> S(1: 6)"));
  EXPECT_THAT(ways_of(space, 2), UnorderedElementsAre("R -> R", "S(0: 8) -> P", "S(1: 6) -> P"));
  for (const auto& ways : space.ways) EXPECT_EQ(ways[0].factor, -1);  // the first is whole
}

TEST(SpmdSpace, LinearOperatorsPassTermsOn) {
  const SpmdSpace space = find_space(product_and("aten::neg(%2)"), 8, {1, 1});
  EXPECT_THAT(ways_of(space, 1), ::testing::Contains("P -> P"));
  EXPECT_THAT(ways_of(space, 2), ::testing::Contains("P -> P"));
  const SpmdSpace other = find_space(product_and("aten::relu(%2)"), 8, {1, 1});
  EXPECT_THAT(ways_of(other, 2), ::testing::Not(::testing::Contains("P -> P")));
}

// The input is split by samples; w may be kept as any way of the product needs it.
TEST(SpmdSpace, SourcesAreKeptAsTheirReadersWantThem) {
  graph::Graph graph = product_and("aten::relu(%2)");
  EXPECT_THAT(find_space(graph, 8, {1, 1}).kept[0], ElementsAre(cut(0, 8)));
  EXPECT_THAT(find_space(graph, 8, {1, 1}).kept[1],
              UnorderedElementsAre(kWholeForm, cut(0, 4), cut(1, 6)));
  EXPECT_THAT(find_space(graph, 8, {1, 1}).kept[2], IsEmpty());
  graph.values[1].frozen = true;
  EXPECT_THAT(find_space(graph, 8, {1, 1}).kept[1], ElementsAre(kWholeForm));
}

TEST(SpmdSpace, WhatNothingWantsIsNotInIt) {
  const SpmdSpace space = find_space(
      product_and("aten::relu(%2)", "op %5: f32[batch, 6] = aten::exp(%2) fwd \"\"\n"), 8, {1, 1});
  EXPECT_TRUE(space.is_needed[3] == 0);
  EXPECT_THAT(space.ways[3], IsEmpty());
  EXPECT_EQ(space.kind_of[3], -1);
  ASSERT_EQ(space.readers[2].size(), 1u);
  EXPECT_EQ(space.readers[2][0].op, OpId(1));
  ASSERT_EQ(space.readers[4].size(), 1u);
  EXPECT_TRUE(space.readers[4][0].op.is_none());  // the loss
}

// Two exponentials of one product, and one of another width.
TEST(SpmdSpace, EqualOperatorsAreOfAKind) {
  auto graph = graph::parse_graph(
      "motley.graph/1\nname \"k\"\nsize batch 1 64\ninput %0: f32[batch, 4] \"x\"\n"
      "param %1: f32[4, 4] \"a\"\nparam %2: f32[4, 6] \"b\"\n"
      "op %3: f32[batch, 4] = aten::exp(%0) fwd \"\"\n"
      "op %4: f32[batch, 4] = aten::exp(%0) fwd \"\"\n"
      "op %5: f32[batch, 4] = aten::mul.Tensor(%3, %4) fwd \"\"\n"
      "op %6: f32[batch, 6] = aten::mm(%5, %2) fwd \"\"\n"
      "op %7: f32[batch, 6] = aten::exp(%6) fwd \"\"\n"
      "op %8: f32[] = aten::sum(%7, none) fwd \"\"\noutput loss %8\n",
      "k");
  ASSERT_TRUE(graph) << graph.error().message;
  const SpmdSpace space = find_space(*graph, 8, {1, 1});
  EXPECT_EQ(space.kind_of[0], space.kind_of[1]);
  EXPECT_NE(space.kind_of[1], space.kind_of[2]);
  EXPECT_NE(space.kind_of[1], space.kind_of[4]);
  EXPECT_EQ(space.value_kind[0], space.value_kind[5]);  // [8, 4]
  EXPECT_NE(space.value_kind[1], space.value_kind[2]);  // [4, 4] and [4, 6]
  EXPECT_EQ(space.value_kind[6], space.value_kind[7]);
}

// Shares 9 : 1 leave the second device without a part of extents of 4 (0.4), but not of 6 and 8
// (0.6 and 0.8 are rounded to 1); 20 : 1 gives it no part of any.
TEST(SpmdSpace, HoldsWhereTheSamePartsAreEmpty) {
  const SpmdSpace space = find_space(product_and("aten::relu(%2)"), 8, {1, 1});
  EXPECT_THAT(space.has_empty,
              ElementsAre(std::pair(std::int64_t{4}, false), std::pair(std::int64_t{6}, false),
                          std::pair(std::int64_t{8}, false)));
  EXPECT_TRUE(holds_for(space, {3, 1}));
  EXPECT_FALSE(holds_for(space, {9, 1}));
  const SpmdSpace uneven = find_space(product_and("aten::relu(%2)"), 8, {9, 1});
  EXPECT_TRUE(uneven.has_empty.at(4));
  EXPECT_FALSE(uneven.has_empty.at(6));
  EXPECT_FALSE(holds_for(uneven, {20, 1}));
}

}  // namespace
}  // namespace motley::search
