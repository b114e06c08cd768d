#include "motley/synth/step/turns.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "motley/graph/graph_text.h"

namespace motley::synth {
namespace {

using ::testing::ElementsAre;

/// Three layers of two micro-batches (of x and of y), one after the other; the last operators add
/// their results. An operator's value has its number + 2.
graph::Graph two_micro_batches() {
  std::string text =
      "motley.graph/1\nname \"two\"\nsize batch 1 64\n"
      "input %0: f32[batch] \"x\"\ninput %1: f32[batch] \"y\"\n";
  for (const int first : {2, 6})
    for (int layer = 0; layer < 4; ++layer)
      text += fmt::format("op %{}: f32[batch] = aten::relu(%{}) fwd \"\"\n", first + layer,
                          layer == 0 ? (first == 2 ? 0 : 1) : first + layer - 1);
  text +=
      "op %10: f32[batch] = aten::add.Tensor(%5, %9, 1) fwd \"\"\n"
      "op %11: f32[] = aten::sum(%10, none) fwd \"\"\noutput loss %11\n";
  auto graph = graph::parse_graph(text, "two");
  EXPECT_TRUE(graph) << graph.error().message;
  return *std::move(graph);
}

class TurnsTest : public ::testing::Test {
 protected:
  /// Returns the values in order; `exchanged` are those whose readers wait for an exchange.
  std::vector<std::int64_t> order(std::int64_t turns, const std::vector<std::int64_t>& exchanged,
                                  std::size_t early = 0) {
    std::vector<OpId> order;
    const std::vector<OpNeeds> needs = find_needs(exchanged, order);
    take_turns(graph_, needs, turns, early, order);
    return values(order);
  }

  std::vector<std::int64_t> in_tasks(const std::vector<OpStretch>& tasks,
                                     const std::vector<std::int64_t>& exchanged) {
    std::vector<OpId> order;
    const std::vector<OpNeeds> needs = find_needs(exchanged, order);
    take_turns(graph_, needs, tasks, order);
    return values(order);
  }

 private:
  std::vector<OpNeeds> find_needs(const std::vector<std::int64_t>& exchanged,
                                  std::vector<OpId>& order) {
    std::vector<OpNeeds> needs(graph_.ops.size());
    for (std::size_t i = 0; i < needs.size(); ++i) {
      needs[i].micro_batch = i < 4 ? 0 : 1;
      graph::for_each_value(graph_.ops[i].arguments, [&](ValueId value) {
        if (std::find(exchanged.begin(), exchanged.end(), value.value) != exchanged.end())
          needs[i].exchanged.push_back(value);
      });
      order.emplace_back(static_cast<std::int64_t>(i));
    }
    return needs;
  }

  std::vector<std::int64_t> values(const std::vector<OpId>& order) {
    std::vector<std::int64_t> values;
    for (const OpId op : order) values.push_back(graph_.op(op).outputs[0].value);
    return values;
  }

  const graph::Graph graph_ = two_micro_batches();
};

TEST_F(TurnsTest, TheOtherOneComputesWhileOneWaits) {
  EXPECT_THAT(order(2, {2, 4, 6, 8}), ElementsAre(2, 6, 3, 4, 7, 8, 5, 9, 10, 11));
}

// One task has the operators of the first two micro-batches, another the last two operators.
TEST_F(TurnsTest, WithinATaskAllTakeTurns) {
  EXPECT_THAT(in_tasks({{0, 8}, {8, 10}}, {2, 4, 6, 8}),
              ElementsAre(2, 6, 3, 4, 7, 8, 5, 9, 10, 11));
  EXPECT_THAT(in_tasks({{0, 4}, {4, 10}}, {2, 4, 6, 8}),
              ElementsAre(2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
  // Results of the first operators were there before: 3 waits for no exchange of this task.
  EXPECT_THAT(in_tasks({{1, 6}, {6, 10}}, {2, 4, 6, 8}),
              ElementsAre(2, 3, 4, 6, 5, 7, 8, 9, 10, 11));
}

TEST_F(TurnsTest, OneByOneKeepsTheOrder) {
  EXPECT_THAT(order(1, {2, 4, 6, 8}), ElementsAre(2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
}

TEST_F(TurnsTest, WithoutExchangesThereIsNothingToTakeTurnsFor) {
  EXPECT_THAT(order(2, {}), ElementsAre(2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
}

// The second micro-batch never waits: it finishes in the first one's first wait.
TEST_F(TurnsTest, WhoHasEndedHasNoTurn) {
  EXPECT_THAT(order(2, {3, 4}), ElementsAre(2, 3, 6, 7, 8, 9, 4, 5, 10, 11));
}

TEST_F(TurnsTest, WhatPreparesStaysInFront) {
  EXPECT_THAT(order(2, {2, 4, 6, 8}, 3), ElementsAre(2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
}

}  // namespace
}  // namespace motley::synth
