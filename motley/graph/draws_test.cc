#include "motley/graph/draws.h"

#include <gtest/gtest.h>

#include "motley/graph/graph_text.h"

namespace motley::graph {
namespace {

TEST(IsRandom, KnowsOperatorsWithAndWithoutOverload) {
  for (const char* name :
       {"aten::native_dropout", "aten::bernoulli.p", "aten::rand_like",
        "aten::normal.Tensor_Tensor", "aten::randperm", "aten::bernoulli_.float"})
    EXPECT_TRUE(is_random(name)) << name;
  for (const char* name : {"aten::native_dropout_backward", "aten::mm", "motley::random"})
    EXPECT_FALSE(is_random(name)) << name;
}

Result<Graph> graph_of(const std::string& ops) {
  return parse_graph(
      "motley.graph/1\nname \"g\"\nsize batch 1 64\ninput %0: f32[batch, 4] \"x\"\n"
      "op %1: f32[] = aten::sum(%0, none) fwd \"\"\n" +
          ops + "output loss %1\n",
      "g");
}

std::string random(int value, const std::string& arguments) {
  return "op %" + std::to_string(value) + ": f32[batch] = motley::random(" + arguments +
         ") fwd \"\"\n";
}

TEST(Draws, HaveNumbersOfTheirOwn) {
  const std::string uniform = "\"uniform\", [size(batch)], dtype(f32), ";
  const auto graph = graph_of(random(2, uniform + "0") + random(3, uniform + "7"));
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_EQ(find_draw_number(graph->ops[2]), 7);
  EXPECT_EQ(find_draw_number(graph->ops[0]), std::nullopt);
  const auto twice = graph_of(random(2, uniform + "7") + random(3, uniform + "7"));
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().message, "g: op 2 (motley::random): draw 7 is there already");
}

TEST(Draws, ThatAreNoneOfOursAreRefused) {
  for (const char* arguments :
       {"\"poisson\", [size(batch)], dtype(f32), 0", "\"uniform\", [size(batch)], dtype(f32), -1",
        "\"uniform\", [size(batch)], dtype(f32), 1073741824", "\"uniform\", [size(batch)], 0"}) {
    const auto refused = graph_of(random(2, arguments));
    ASSERT_FALSE(refused) << arguments;
    EXPECT_EQ(refused.error().message,
              "g: op 1 (motley::random): its arguments and results are not those of a draw");
  }
  const auto refused =
      graph_of("op %2: f32[batch, 4], %3: bool[batch, 4] = motley::dropout(%0, 1.5, 0) fwd \"\"\n");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "g: op 1 (motley::dropout): its arguments and results are not those of a draw");
  const auto of_pytorch = graph_of(
      "op %2: f32[batch, 4] = aten::rand_like(%0, none, none, none, none, none) fwd \"\"\n");
  ASSERT_FALSE(of_pytorch);
  EXPECT_EQ(of_pytorch.error().message,
            "g: op 1 (aten::rand_like): draws random numbers that do not follow from its place in "
            "the batch; export the model again");
}

TEST(Draws, OnlyPermutationsAreAcrossElements) {
  const auto graph = graph_of(
      "op %2: i64[batch] = motley::random(\"permutation\", [size(batch)], dtype(i64), 0) fwd "
      "\"\"\n" +
      random(3, "\"normal\", [size(batch)], dtype(f32), 1"));
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_TRUE(draws_across(graph->ops[1]));
  EXPECT_FALSE(draws_across(graph->ops[2]));
}

}  // namespace
}  // namespace motley::graph
