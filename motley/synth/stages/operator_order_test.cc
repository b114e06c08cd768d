#include "motley/synth/stages/operator_order.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "motley/testing/layered_step.h"

namespace motley::synth {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

/// Two layers on a device each, of so many micro-batches; the loss is with the second one.
struct TwoStages {
  explicit TwoStages(std::int64_t times)
      : graph(layered_step({.layers = 2})),
        plan(
            plan_of_replicas({{2 * times,
                               {modules_on(graph, 0, {"l0"}), modules_on(graph, 1, {"l1", "loss"})},
                               times}})),
        all(accumulate_replicas(graph, find_passes(plan), plan.batch_norm_span).value()),
        stages(2) {
    for (std::size_t s = 0; s < 2; ++s) {
      stages[s].region = &plan.replicas[0].regions[s];
      stages[s].ranks = {s};
    }
  }

  StageNeeds needs() const {
    std::vector<std::size_t> region_of;
    for (const graph::Op& op : graph.ops) region_of.push_back(op.module == "l0" ? 0 : 1);
    return find_stage_needs(graph, all, stages, {region_of});
  }

  graph::Graph graph;
  plan::Plan plan;
  Accumulation all;
  std::vector<StageGraph> stages;
};

TEST(StageNeeds, OperatorsAreWhereTheirModulesAreAndWhatOthersReadPasses) {
  const TwoStages two(1);
  const StageNeeds needs = two.needs();
  std::vector<std::string> passing;
  for (const auto& [from, values] : needs.passing)
    for (const auto& [value, to] : values)
      passing.push_back(fmt::format("{} {}>{}", two.all.graph.ops[from.op].name, from.stage, to));
  // The second layer's activation, and the gradient of the first one's.
  EXPECT_THAT(passing, UnorderedElementsAre("aten::relu 0>1", "aten::mm 1>0"));
  for (std::size_t op = 0; op < needs.stages_of.size(); ++op)
    if (const OpId of = two.all.copies[op].of; !of.is_none()) {
      EXPECT_THAT(needs.stages_of[op], ElementsAre(two.graph.op(of).module == "l0" ? 0 : 1));
    }
  EXPECT_EQ(needs.maker(ValueId(0), 1).op, kNowhere);  // a source
}

// There and back: tasks 1 to 4 between the first and the last one.
TEST(OperatorOrder, AMicroBatchGoesThereAndBack) {
  const TwoStages two(1);
  const OperatorOrder order = find_operator_order(two.needs(), two.plan);
  EXPECT_EQ(order.count, 6);
  std::vector<std::size_t> stages;  // by task between
  for (std::size_t i = 0; i < order.operators.size(); ++i)
    if (order.is_between(order.tasks[i]) &&
        order.tasks[i] > static_cast<std::int64_t>(stages.size()))
      stages.push_back(order.operators[i].stage);
  EXPECT_THAT(stages, ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(order.lags, ElementsAre(0, 0));
}

// Two devices of two micro-batches each: the clock of three tasks of one of them is that of the
// other one's two, so the end is before that of one after the other.
TEST(OperatorOrder, MicroBatchesOverlap) {
  const TwoStages one(1), two(2);
  const auto end = [](const TwoStages& of) {
    const OperatorOrder order = find_operator_order(of.needs(), of.plan);
    return *std::max_element(order.times.begin(), order.times.end());
  };
  EXPECT_LT(end(two), 2 * end(one));
  EXPECT_GT(end(two), end(one));
}

}  // namespace
}  // namespace motley::synth
