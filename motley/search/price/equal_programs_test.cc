#include "motley/search/price/equal_programs.h"

#include <gtest/gtest.h>

#include "motley/base/parallel.h"
#include "motley/testing/golden.h"

namespace motley::search {
namespace {

TEST(EqualPrograms, AreThoseOfTheLowering) {
  const graph::Graph graph = synth::read_graph("mlp");
  EqualPrograms programs;
  const auto found = programs.find(graph, {2, 5}, 2, {});
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ((*found)->size(), 2u);
  EXPECT_EQ((*found)->at(0), synth::lower_first(graph, {2, 2}, {}).value());
  EXPECT_EQ((*found)->at(1), synth::lower_first(graph, {5, 2}, {}).value());
}

TEST(EqualPrograms, AreMadeOnceForEachQuestion) {
  const graph::Graph graph = synth::read_graph("mlp");
  EqualPrograms programs;
  const auto first = programs.find(graph, {2}, 2, {});
  EXPECT_EQ(*programs.find(graph, {2}, 2, {}), *first);
  EXPECT_NE(*programs.find(graph, {2}, 1, {}), *first);
  EXPECT_NE(*programs.find(graph, {3}, 2, {}), *first);
  synth::LowerOptions portable;
  portable.updates = plan::Updates::kPortable;
  EXPECT_NE(*programs.find(graph, {2}, 2, portable), *first);
  EXPECT_EQ(*programs.find(graph, {2}, 2, {}), *first);
}

TEST(EqualPrograms, AreTheSameForAllWhoAskAtOnce) {
  const graph::Graph graph = synth::read_graph("gpt");
  EqualPrograms programs;
  std::vector<Result<EqualPrograms::Programs>> found(8);
  run_in_parallel(found.size(), [&](std::size_t i) {
    found[i] = programs.find(graph, {1, 2, 3}, 2, {});
  });
  for (const auto& each : found) EXPECT_EQ(*each, *found[0]);
}

}  // namespace
}  // namespace motley::search
