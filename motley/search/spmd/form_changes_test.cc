#include "motley/search/spmd/form_changes.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/graph/graph_text.h"

namespace motley::search {
namespace {

using graph::Form;
using graph::FormKind;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// x w, two operators on it, and the gradient of w by samples.
class FormChangesTest : public ::testing::Test {
 protected:
  FormChangesTest() {
    auto graph = graph::parse_graph(
        "motley.graph/1\nname \"f\"\nsize batch 1 64\ninput %0: f32[batch, 4] \"x\"\n"
        "param %1: f32[4, 4] \"w\"\n"
        "op %2: f32[batch, 4] = aten::mm(%0, %1) fwd \"\"\n"
        "op %3: f32[batch, 4] = aten::relu(%2) fwd \"\"\n"
        "op %4: f32[batch, 4] = aten::exp(%2) fwd \"\"\n"
        "op %5: f32[batch, 4] = aten::add.Tensor(%3, %4, 1) fwd \"\"\n"
        "op %6: f32[] = aten::sum(%5, none) fwd \"\"\n"
        "op %7: f32[4, batch] = aten::t(%0) bwd \"\"\n"
        "op %8: f32[4, 4] = aten::mm(%7, %2) bwd \"\"\n"
        "output loss %6\noutput gradient %8 of \"w\"\n",
        "f");
    EXPECT_TRUE(graph) << graph.error().message;
    graph_ = *std::move(graph);
    space_ = find_space(graph_, 8, {1, 1});
    sharding_.devices = {"0", "1"};
    sharding_.shares = {1, 1};
    sharding_.batch = 8;
    sharding_.sources.assign(graph_.values.size(), graph::kWholeForm);
    sharding_.sources[0] = kSamples;
    sharding_.ops.resize(graph_.ops.size());
    for (std::size_t op = 0; op < 6; ++op) run(op, kSamples);
    run(6, {FormKind::kSharded, 1, 1, 8, 1});  // samples are columns there
  }

  /// Splits an operator so that its first operand has this form.
  void run(std::size_t op, const Form& form) {
    const auto way = follow(space_.rules[op], 0, form);
    ASSERT_TRUE(way) << op;
    sharding_.ops[op] = *way;
  }

  /// Returns "%2 S(0: 8) -> R for 3.0" for operator 3's operand 0; "out.1" for the second output.
  std::vector<std::string> changes() const {
    std::vector<std::string> texts;
    for (const FormChange& each : find_changes(graph_, space_, sharding_))
      texts.push_back(fmt::format(
          "%{} {} -> {} for {}.{}", each.value.value, print_form(each.from), print_form(each.to),
          each.reader.op.is_none() ? "out" : std::to_string(each.reader.op.value),
          each.reader.operand));
    return texts;
  }

  const Form kSamples{FormKind::kSharded, 0, 1, 8, 1}, kColumns{FormKind::kSharded, 1, 1, 4, 1};
  graph::Graph graph_;
  SpmdSpace space_;
  synth::Sharding sharding_;
};

TEST_F(FormChangesTest, DataParallelismSumsLossAndGradients) {
  EXPECT_THAT(changes(), ElementsAre("%6 P -> R for out.0", "%8 P -> R for out.1"));
}

TEST_F(FormChangesTest, GradientsEndAsTheirParametersAreKept) {
  sharding_.sources[1] = {FormKind::kSharded, 0, 1, 4, 1};
  EXPECT_THAT(changes(), ElementsAre("%1 S(0: 4) -> R for 0.1", "%6 P -> R for out.0",
                                     "%8 P -> S(0: 4) for out.1"));
}

TEST_F(FormChangesTest, EachFormIsMadeOnce) {
  for (const std::size_t op : {1, 2, 3}) run(op, kColumns);
  run(4, kColumns);
  EXPECT_THAT(changes(), ElementsAre("%2 S(0: 8) -> S(1: 4) for 1.0", "%6 P -> R for out.0",
                                     "%8 P -> R for out.1"));
  // Another form is another conversion.
  sharding_.ops[2] = whole_strategy(space_.rules[2]);
  EXPECT_THAT(changes(),
              ElementsAre("%2 S(0: 8) -> S(1: 4) for 1.0", "%2 S(0: 8) -> R for 2.0",
                          "%4 R -> S(1: 4) for 3.1", "%6 P -> R for out.0", "%8 P -> R for out.1"));
}

TEST_F(FormChangesTest, WhatIsWholeEverywhereChangesNothing) {
  sharding_.sources[0] = graph::kWholeForm;
  for (std::size_t op = 0; op < graph_.ops.size(); ++op)
    sharding_.ops[op] = whole_strategy(space_.rules[op]);
  EXPECT_THAT(changes(), IsEmpty());
}

}  // namespace
}  // namespace motley::search
