#include "motley/graph/rules/without_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/graph/graph_text.h"

namespace motley::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> lines_of(const std::string& ops, int loss) {
  const auto graph = parse_graph(
      "motley.graph/1\nname \"g\"\nsize batch 1 4096\ninput %0: f32[batch, 4] \"x\"\n"
      "param %1: f32[4] \"w\"\n" +
          ops + "output loss %" + std::to_string(loss) + "\n",
      "g");
  EXPECT_TRUE(graph) << graph.error().message;
  return explain_without_rule(*graph, {{"batch", 8}});
}

TEST(WithoutRule, NamesOperatorsByLayer) {
  // The second operator works on no samples; nothing needs the last.
  EXPECT_THAT(lines_of("op %2: f32[batch, 4] = aten::first(%0) fwd \"h.0\"\n"
                       "op %3: f32[4] = aten::weights(%1) fwd \"h.0\"\n"
                       "op %4: f32[batch, 4] = aten::mul.Tensor(%2, %3) fwd \"h.1\"\n"
                       "op %5: f32[batch, 4] = aten::first(%4) fwd \"h.1\"\n"
                       "op %6: f32[batch, 4] = aten::second(%5) fwd \"h.1\"\n"
                       "op %7: f32[] = aten::sum(%6, none) fwd \"\"\n"
                       "op %8: f32[batch, 4] = aten::third(%5) fwd \"h.1\"\n",
                       7),
              ElementsAre("h.0: whole: no rule for aten::first",
                          "h.1: whole: no rule for aten::first, aten::second"));
}

TEST(WithoutRule, SaysThatNothingIsGainedWhereNothingIsKnown) {
  EXPECT_THAT(lines_of("op %2: f32[] = aten::all_of_it(%0, %1) fwd \"\"\n", 2),
              ElementsAre("whole: no rule for aten::all_of_it",
                          "no operator has a rule: several devices would all do the same"));
}

TEST(WithoutRule, NamesWhatIsDrawnAcrossSamples) {
  EXPECT_THAT(lines_of("op %2: i64[batch] = motley::random(\"permutation\", [size(batch)], "
                       "dtype(i64), 0) fwd \"mix\"\n"
                       "op %3: i64[4] = motley::random(\"permutation\", [4], dtype(i64), 1) fwd "
                       "\"mix\"\n"
                       "op %4: f32[batch, 4] = aten::index.Tensor(%0, [%2, %3]) fwd \"mix\"\n"
                       "op %5: f32[] = aten::sum(%4, none) fwd \"\"\n",
                       5),
              ElementsAre("mix: whole: a permutation of all samples, which each device draws alike",
                          "mix: whole: no rule for aten::index"));
}

TEST(WithoutRule, IsSilentWhereAllIsKnown) {
  EXPECT_THAT(lines_of("op %2: f32[] = aten::sum(%0, none) fwd \"\"\n", 2), IsEmpty());
}

}  // namespace
}  // namespace motley::graph
