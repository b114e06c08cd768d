#include "motley/synth/stages/stage_graphs.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "motley/base/random.h"
#include "motley/graph/work.h"
#include "motley/plan/pass_order.h"
#include "motley/testing/drawn_stages.h"
#include "motley/testing/golden.h"
#include "motley/testing/layered_step.h"
#include "motley/testing/rounds.h"
#include "motley/testing/run_stages.h"

namespace motley::synth {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

StagedStep cut_up(const graph::Graph& graph, const plan::Plan& plan) {
  auto step = cut_into_stages(graph, plan, plan::members(plan));
  EXPECT_TRUE(step) << step.error().message;
  return step ? *std::move(step) : StagedStep{};
}

std::string cut_error(const graph::Graph& graph, const plan::Plan& plan) {
  const auto step = cut_into_stages(graph, plan, plan::members(plan));
  EXPECT_FALSE(step);
  return step ? "" : step.error().code + ": " + step.error().message;
}

std::string short_name(const graph::Op& op) {
  const std::string name = op.name.substr(op.name.find("::") + 2);
  return op.direction == graph::Direction::kForward ? name : name + "'";
}

/// What a stage does, its tasks apart: "mm relu | t' mm'"; what is of the backward pass has a '.
std::string work_in(const StagedStep& step, std::size_t s) {
  const StageGraph& stage = step.stages[s];
  std::string text;
  for (std::size_t i = 0; i < stage.graph.ops.size(); ++i) {
    if (i > 0) text += stage.tasks[i] == stage.tasks[i - 1] ? " " : " | ";
    text += short_name(stage.graph.ops[i]);
  }
  return text;
}

/// What a stage reads that none of its operators makes: names, "1" for the tangent, and "received".
std::string sources_in(const StagedStep& step, std::size_t s) {
  std::vector<std::string> found;
  for (const graph::Value& value : step.stages[s].graph.values)
    if (value.producer.is_none())
      found.push_back(value.role == graph::ValueRole::kTangent      ? "1"
                      : value.role == graph::ValueRole::kActivation ? "received"
                                                                    : value.name);
  std::sort(found.begin(), found.end());
  return fmt::format("{}", fmt::join(found, " "));
}

/// "loss w0 w1": what outputs of a stage are of.
std::string outputs_in(const StagedStep& step, std::size_t s) {
  const graph::Graph& graph = step.stages[s].graph;
  std::vector<std::string> found;
  for (const graph::Output& output : graph.outputs)
    found.push_back(output.of.is_none() ? "loss" : graph.value(output.of).name);
  return fmt::format("{}", fmt::join(found, " "));
}

/// "0>1 relu": who gives whom what, by the operator that makes it.
std::vector<std::string> boundary_values_in(const StagedStep& step) {
  std::vector<std::string> found;
  for (const BoundaryValue& each : step.boundary_values) {
    const graph::Graph& from = step.stages[each.from].graph;
    found.push_back(fmt::format("{}>{} {}", each.from, each.to,
                                short_name(from.op(from.value(each.made).producer))));
  }
  return found;
}

/// "F0 F1 B0 ...": passes of micro-batches, in the order in which some stages do them; of several
/// stages with letters, "F0a F0b". Two that are done together "F1B0".
std::string order_in_stages(const StagedStep& step, const std::vector<std::size_t>& stages) {
  std::map<std::int64_t, std::set<std::string>> passes;  // by task
  for (std::size_t n = 0; n < stages.size(); ++n) {
    const StageGraph& stage = step.stages[stages[n]];
    for (std::size_t i = 0; i < stage.graph.ops.size(); ++i) {
      const bool is_between = stage.tasks[i] > 0 && stage.tasks[i] + 1 < step.tasks;
      if (!is_between || stage.copies[i].micro_batch < 0) continue;
      const bool is_forward = stage.graph.ops[i].direction == graph::Direction::kForward;
      passes[stage.tasks[i]].insert(
          fmt::format("{}{}{}", is_forward ? "F" : "B", stage.copies[i].micro_batch,
                      stages.size() > 1 ? "abcd"[n] + std::string() : ""));
    }
  }
  std::vector<std::string> texts;
  for (const auto& [task, each] : passes)
    texts.push_back(fmt::format("{}", fmt::join(each.rbegin(), each.rend(), "")));
  return fmt::format("{}", fmt::join(texts, " "));
}

/// Do the stages compute what the graph computes at the whole batch?
void expect_same_step(const StagedStep& step, const graph::Graph& graph, std::int64_t batch,
                      std::uint64_t seed = 1) {
  const auto given = testing::draw_values(graph, batch, seed);
  const testing::StepValues whole = testing::run_graph(graph, batch, given);
  const testing::StagedValues staged = testing::StagesRun(step, given).run();
  EXPECT_NEAR(staged.sums.loss, whole.loss, 1e-9 * std::max(1.0, std::abs(whole.loss)));
  EXPECT_EQ(staged.sums.gradients.size(), whole.gradients.size());
  for (const auto& [name, gradient] : whole.gradients)
    testing::expect_near(staged.sums.gradients.at(name), gradient, name);
}

/// Two layers, the second with the loss, of so many samples in so many micro-batches.
plan::Plan two_stages_of(const graph::Graph& graph, std::int64_t samples, std::int64_t times) {
  return plan_of_replicas(
      {{samples, {modules_on(graph, 0, {"l0"}), modules_on(graph, 1, {"l1", "loss"})}, times}});
}

// One micro-batch: each stage does a forward task and a backward one. The first one reads the
// samples, the second one what the first gives it; gradients of weights stay where these are.
TEST(StageGraphs, AStageHasItsOperatorsAndGetsWhatElseTheyRead) {
  const graph::Graph graph = layered_step({.layers = 2});
  const plan::Plan plan = two_stages_of(graph, 4, 1);
  const StagedStep step = cut_up(graph, plan);
  ASSERT_EQ(step.stages.size(), 2U);
  EXPECT_EQ(work_in(step, 0), "mm relu | threshold_backward' t' mm'");
  EXPECT_EQ(work_in(step, 1), "mm relu mul sum | mul' mul' threshold_backward' t' mm' t' mm'");
  EXPECT_EQ(sources_in(step, 0), "received w0 x");
  EXPECT_EQ(sources_in(step, 1), "1 received w1");
  EXPECT_EQ(outputs_in(step, 0), "w0");
  EXPECT_EQ(outputs_in(step, 1), "loss w1");
  EXPECT_THAT(boundary_values_in(step), ElementsAre("0>1 relu", "1>0 mm'"));
  // First, two tasks each, last.
  EXPECT_EQ(step.tasks, 6);
  for (std::size_t s = 0; s < 2; ++s) {
    EXPECT_EQ(step.stages[s].replica, 0U);
    EXPECT_EQ(step.stages[s].region, &plan.replicas[0].regions[s]);
    EXPECT_THAT(step.stages[s].ranks, ElementsAre(s));
    EXPECT_EQ(step.stages[s].graph.name, "s");
  }
  expect_same_step(step, graph, 4);
}

// What is passed on is there behind its maker, before whoever reads it; its reader has it as a
// value of the same shape that no operator makes.
TEST(StageGraphs, ABoundaryValueStandsWhereItsValueIsMade) {
  const graph::Graph graph = layered_step({.layers = 2});
  const StagedStep step = cut_up(graph, two_stages_of(graph, 4, 1));
  for (const BoundaryValue& each : step.boundary_values) {
    const StageGraph &from = step.stages[each.from], &to = step.stages[each.to];
    const graph::Value& made = from.graph.value(each.made);
    EXPECT_EQ(each.position, from.positions[made.producer.index()]);
    const graph::Value& read = to.graph.value(each.read);
    EXPECT_TRUE(read.producer.is_none());
    EXPECT_EQ(read.shape, made.shape);
    EXPECT_EQ(read.role, graph::ValueRole::kActivation);
  }
  // mm relu of the first stage, mm relu mul sum and six backward operators of the second one.
  EXPECT_EQ(step.boundary_values[0].position, 1);
  EXPECT_EQ(step.boundary_values[1].position, 2 + 4 + 7 - 1);
}

// Seven samples as 3, 2 and 2. Slices of the samples and what has none (t of w1) come first; sums
// of terms stand behind what makes these. A stage passes on each micro-batch's activation, and gets
// its gradient.
TEST(StageGraphs, MicroBatchesAreTasksWhoseTermsAreAddedUp) {
  const graph::Graph graph = layered_step({.layers = 2});
  const StagedStep step = cut_up(graph, two_stages_of(graph, 7, 3));
  EXPECT_EQ(work_in(step, 0),
            "slice slice slice | mm relu | mm relu | threshold_backward' t' mm' | mm relu | "
            "threshold_backward' t' mm' add' | threshold_backward' t' mm' add'");
  EXPECT_EQ(work_in(step, 1),
            "t' | mm relu mul sum | mul' mul' threshold_backward' t' mm' mm' | "
            "mm relu mul sum add | mul' mul' threshold_backward' t' mm' add' mm' | "
            "mm relu mul sum add | mul' mul' threshold_backward' t' mm' add' mm'");
  EXPECT_THAT(boundary_values_in(step), UnorderedElementsAre("0>1 relu", "0>1 relu", "0>1 relu",
                                                             "1>0 mm'", "1>0 mm'", "1>0 mm'"));
  std::vector<std::int64_t> rows;
  for (const BoundaryValue& each : step.boundary_values)
    if (each.from == 0)
      rows.push_back(step.stages[0].graph.value(each.made).shape[0].evaluate_integer({}));
  EXPECT_THAT(rows, ElementsAre(3, 2, 2));
  expect_same_step(step, graph, 7);
}

// Each region counts micro-batches under way: as many as regions from there on, or what it says.
TEST(StageGraphs, TheOrderIsOneForwardOneBackwardOrWhatAheadSays) {
  const graph::Graph graph = layered_step({.layers = 2});
  plan::Plan plan = two_stages_of(graph, 6, 3);
  const StagedStep by_count = cut_up(graph, plan);
  EXPECT_EQ(order_in_stages(by_count, {0}), "F0 F1 B0 F2 B1 B2");
  EXPECT_EQ(order_in_stages(by_count, {1}), "F0 B0 F1 B1 F2 B2");
  for (plan::Region& region : plan.replicas[0].regions) region.ahead = 3;
  const StagedStep all_first = cut_up(graph, plan);
  EXPECT_EQ(order_in_stages(all_first, {0}), "F0 F1 F2 B0 B1 B2");
  plan.replicas[0].regions[0].ahead = 1;
  EXPECT_EQ(order_in_stages(cut_up(graph, plan), {0}), "F0 B0 F1 B1 F2 B2");
}

/// When the step's last task ends.
double end_of(const StagedStep& step) {
  return *std::max_element(step.times.begin(), step.times.end());
}

// One micro-batch goes there and back: the end is the sum of all work, and the lag of whoever gets
// something, in units of its work on a micro-batch. Devices of double speed take half as long.
TEST(StageGraphs, TasksTakeTheirWorkAndMessagesTheLag) {
  const graph::Graph graph = layered_step({.layers = 2, .width = 512});
  plan::Plan plan = two_stages_of(graph, 4, 1);
  plan::Region &first = plan.replicas[0].regions[0], &second = plan.replicas[0].regions[1];
  const auto end = [&] { return end_of(cut_up(graph, plan)); };
  const double all = end();
  first.speed = 2;
  const double of_first = 2 * (all - end());
  first.speed = 1;
  second.speed = 2;
  const double of_second = 2 * (all - end());
  second.speed = 1;
  EXPECT_NEAR(of_first + of_second, all, 1e-9 * all);
  second.lag = 3;
  EXPECT_NEAR(end(), all + 3 * of_second, 1e-9 * all);
  // What it gets in a micro-batch, 4 x 512 f32, in that time.
  const StagedStep lagging = cut_up(graph, plan);
  EXPECT_EQ(lagging.stages[0].rate, 0);
  EXPECT_NEAR(lagging.stages[1].rate, 8192 / (3 * of_second), 1e-6 * lagging.stages[1].rate);
  first.lag = 0.5;
  EXPECT_NEAR(end(), all + 3 * of_second + 0.5 * of_first, 1e-9 * all);
}

// Both layers multiply by one weight: each stage has it, and gives the term of its own layer, which
// the model's graph adds up.
TEST(StageGraphs, StagesWithATiedWeightHaveATermEach) {
  const graph::Graph graph = layered_step({.layers = 2, .weights = 1});
  const StagedStep step = cut_up(graph, two_stages_of(graph, 6, 2));
  EXPECT_EQ(outputs_in(step, 0), "w0");
  EXPECT_EQ(outputs_in(step, 1), "loss w0");
  EXPECT_EQ(step.boundary_values.size(), 4U);
  expect_same_step(step, graph, 6);
}

// Of one micro-batch the model's own operator, in l0, adds both terms up: the second stage's goes
// there, and it adds zeros to the gradient of what it has.
TEST(StageGraphs, OneMicroBatchAddsTermsUpAsTheModelDoes) {
  const graph::Graph graph = layered_step({.layers = 2, .weights = 1});
  const StagedStep step = cut_up(graph, two_stages_of(graph, 6, 1));
  EXPECT_EQ(work_in(step, 0), "mm relu | threshold_backward' t' mm' add'");
  EXPECT_EQ(work_in(step, 1),
            "mm relu mul sum | mul' mul' threshold_backward' t' mm' t' mm' | zeros_like'");
  EXPECT_THAT(boundary_values_in(step), ElementsAre("0>1 relu", "1>0 mm'", "1>0 mm'"));
  expect_same_step(step, graph, 6);
  const plan::Plan alone = plan_of_replicas({{6, {plan::Region{{DeviceId(0)}, {1.0}}}, 1}});
  const StagedStep whole = cut_up(graph, alone);
  EXPECT_EQ(work_in(whole, 0),
            "mm relu mm relu mul sum | mul' mul' threshold_backward' t' mm' t' mm' "
            "threshold_backward' t' "
            "mm' add'");
  EXPECT_TRUE(whole.boundary_values.empty());
}

// Backward operators of the first layer are in the second stage, which reads the weight, too: so it
// has all of the gradient, and the first stage, which must update its copy, zeros.
TEST(StageGraphs, WhoHasAParameterAndNoTermOfItsGradientAddsZeros) {
  const graph::Graph graph = layered_step({.layers = 2, .weights = 1});
  plan::Plan plan = two_stages_of(graph, 6, 2);
  plan.replicas[0].regions[0].covers = {{0, 2}};
  plan.replicas[0].regions[1].covers = {{2, static_cast<std::int64_t>(graph.ops.size())}};
  const StagedStep step = cut_up(graph, plan);
  EXPECT_EQ(work_in(step, 0), "slice slice | mm relu | mm relu | zeros_like'");
  EXPECT_EQ(outputs_in(step, 0), "w0");
  EXPECT_EQ(outputs_in(step, 1), "loss w0");
  // The second stage reads the samples, too (t of them), and cuts its own slices.
  EXPECT_EQ(sources_in(step, 1), "1 received received received received w0 x");
  expect_same_step(step, graph, 6);
}

/// Two layers that multiply by the transpose of one weight, which l0 makes.
graph::Graph step_with_view() {
  return step_of_lines(
      "input %0: f32[batch, 3] \"x\"\nparam %1: f32[3, 3] \"w\"\ntangent %2: f32[]\n"
      "op %3: f32[3, 3] = aten::t(%1) fwd \"l0\"\n"
      "op %4: f32[batch, 3] = aten::mm(%0, %3) fwd \"l0\"\n"
      "op %5: f32[batch, 3] = aten::mm(%4, %3) fwd \"l1\"\n"
      "op %6: f32[] = aten::sum(%5, none) fwd \"l1\"\n"
      "op %7: f32[batch, 3] = aten::expand(%2, [size(batch), 3], false) bwd \"l1\"\n"
      "op %8: f32[3, batch] = aten::t(%4) bwd \"l1\"\n"
      "op %9: f32[3, 3] = aten::mm(%8, %7) bwd \"l1\"\n"
      "op %10: f32[3, 3] = aten::t(%9) bwd \"l1\"\n"
      "op %11: f32[3, 3] = aten::t(%3) bwd \"l1\"\n"
      "op %12: f32[batch, 3] = aten::mm(%7, %11) bwd \"l1\"\n"
      "op %13: f32[3, batch] = aten::t(%0) bwd \"l0\"\n"
      "op %14: f32[3, 3] = aten::mm(%13, %12) bwd \"l0\"\n"
      "op %15: f32[3, 3] = aten::t(%14) bwd \"l0\"\n"
      "op %16: f32[3, 3] = aten::add.Tensor(%10, %15, 1) bwd \"l0\"\n"
      "output loss %6\noutput gradient %16 of \"w\"\n");
}

// The second stage does not have the weight: it is given the view once a step, and gives a term of
// all micro-batches back, behind its last one; the first adds it to its own.
TEST(StageGraphs, ATermOfWhatAStageDoesNotReadGoesToWhoDoes) {
  const graph::Graph graph = step_with_view();
  const StagedStep step = cut_up(graph, two_stages_of(graph, 6, 2));
  EXPECT_EQ(sources_in(step, 1), "1 received received received");
  EXPECT_EQ(outputs_in(step, 0), "w");
  EXPECT_EQ(outputs_in(step, 1), "loss");
  std::vector<std::string> boundary_values = boundary_values_in(step);
  EXPECT_EQ(boundary_values.front(), "0>1 t");
  EXPECT_EQ(boundary_values.back(), "1>0 add'");
  EXPECT_THAT(boundary_values,
              UnorderedElementsAre("0>1 t", "0>1 mm", "0>1 mm", "1>0 mm'", "1>0 mm'", "1>0 add'"));
  EXPECT_EQ(work_in(step, 0), "slice slice t | mm | mm | t' mm' t' | t' mm' t' add' add'");
  expect_same_step(step, graph, 6);
}

// Three samples as 2 and 1: the second stage gets [2, 3] and [1, 3] f32, 24 bytes at most. The view
// of the weight, 36 bytes, comes once a step and does not count. The lag is of the work on a
// micro-batch, half of all.
TEST(StageGraphs, TheRateIsThatOfWhatComesInAMicroBatch) {
  const graph::Graph graph = step_with_view();
  plan::Plan plan = two_stages_of(graph, 3, 2);
  plan.replicas[0].regions[1].lag = 3;
  const StagedStep step = cut_up(graph, plan);
  double work = 0;
  const StageGraph& second = step.stages[1];
  for (std::size_t i = 0; i < second.graph.ops.size(); ++i)
    if (second.tasks[i] > 0 && !second.origins[i].is_none())
      work += plan::order_seconds(
          graph::op_work(second.graph, OpId(static_cast<std::int64_t>(i)), graph::Sizes{}));
  EXPECT_NEAR(second.rate, 24 / (3 * work / 2), 1e-6 * second.rate);
}

// Of three stages the last reads what the first makes: it goes there by itself, once for several
// readers.
TEST(StageGraphs, AValueGoesToEveryStageThatReadsIt) {
  const graph::Graph graph = step_of_lines(
      "input %0: f32[batch, 3] \"x\"\nparam %1: f32[3] \"w\"\ntangent %2: f32[]\n"
      "op %3: f32[batch, 3] = aten::exp(%0) fwd \"l0\"\n"
      "op %4: f32[batch, 3] = aten::relu(%3) fwd \"l1\"\n"
      "op %5: f32[batch, 3] = aten::mul.Tensor(%3, %4) fwd \"l2\"\n"
      "op %6: f32[batch, 3] = aten::mul.Tensor(%5, %3) fwd \"l2\"\n"
      "op %7: f32[] = aten::sum(%6, none) fwd \"l2\"\n"
      "op %8: f32[3] = aten::sum.dim_IntList(%3, [0], false, none) bwd \"l2\"\n"
      "op %9: f32[3] = aten::mul.Tensor(%8, %2) bwd \"l2\"\n"
      "output loss %7\noutput gradient %9 of \"w\"\n");
  const StagedStep step =
      cut_up(graph, plan_of_replicas({{5,
                                       {modules_on(graph, 0, {"l0"}), modules_on(graph, 1, {"l1"}),
                                        modules_on(graph, 2, {"l2"})},
                                       1}}));
  EXPECT_THAT(boundary_values_in(step), ElementsAre("0>1 exp", "0>2 exp", "1>2 relu"));
  // Nobody reads w; its gradient is there all the same, where it is made.
  EXPECT_EQ(outputs_in(step, 2), "loss w");
  expect_same_step(step, graph, 5);
}

// Five samples and three; the first replica's cut is behind l1, the second one's behind l0, the
// third is one device with two samples. Each has terms of loss and gradients of its own.
TEST(StageGraphs, ReplicasAreCutByThemselves) {
  const graph::Graph graph = layered_step({.layers = 3});
  const plan::Plan plan = plan_of_replicas(
      {{5, {modules_on(graph, 4, {"l0", "l1"}), modules_on(graph, 1, {"l2", "loss"})}, 2},
       {3, {modules_on(graph, 2, {"l0"}), modules_on(graph, 0, {"l1", "l2", "loss"})}, 1},
       {2, {plan::Region{{DeviceId(3)}, {1.0}}}, 1}});
  const StagedStep step = cut_up(graph, plan);
  ASSERT_EQ(step.stages.size(), 5U);
  std::vector<std::tuple<std::size_t, std::size_t, std::string>> stages;  // replica, rank, outputs
  for (std::size_t s = 0; s < 5; ++s)
    stages.emplace_back(step.stages[s].replica, step.stages[s].ranks.at(0), outputs_in(step, s));
  EXPECT_THAT(stages, ElementsAre(std::tuple(0, 0, "w0 w1"), std::tuple(0, 1, "loss w2"),
                                  std::tuple(1, 2, "w0"), std::tuple(1, 3, "loss w1 w2"),
                                  std::tuple(2, 4, "loss w0 w1 w2")));
  for (const BoundaryValue& each : step.boundary_values)
    EXPECT_EQ(step.stages[each.from].replica, step.stages[each.to].replica);
  EXPECT_EQ(step.boundary_values.size(), 2U * 2 + 2);
  expect_same_step(step, graph, 10);
}

// Device 0 has l0 and l2, device 1 l1 and l3: both micro-batches go through two devices before a
// gradient comes back, as in StageOrder's test of these places.
TEST(StageGraphs, DevicesWithSeveralRegionsTakeMicroBatchesInTurns) {
  const graph::Graph graph = layered_step({.layers = 4});
  const plan::Plan plan =
      plan_of_replicas({{4,
                         {modules_on(graph, 0, {"l0"}), modules_on(graph, 1, {"l1"}),
                          modules_on(graph, 0, {"l2"}), modules_on(graph, 1, {"l3", "loss"})},
                         2}});
  const StagedStep step = cut_up(graph, plan);
  EXPECT_THAT(step.stages[2].ranks, ElementsAre(0));
  EXPECT_THAT(step.stages[3].ranks, ElementsAre(1));
  EXPECT_EQ(order_in_stages(step, {0, 2}), "F0a F1a F0b F1b B0b B1b B0a B1a");
  expect_same_step(step, graph, 4);
}

/// A layer with dropout behind it: y = w (x) mask, and a second layer.
graph::Graph step_with_mask(const std::string& module) {
  return step_of_lines(fmt::format(
      "input %0: f32[batch, 3] \"x\"\nparam %1: f32[3, 3] \"w0\"\nparam %2: f32[3, 3] \"w1\"\n"
      "op %3: f32[batch, 3] = aten::mm(%0, %1) fwd \"l0\"\n"
      "op %4: f32[batch, 3] = motley::random(\"uniform\", [size(batch), 3], dtype(f32), 4) fwd "
      "\"{0}\"\n"
      "op %5: f32[batch, 3] = aten::mul.Tensor(%3, %4) fwd \"{0}\"\n"
      "op %6: f32[batch, 3] = aten::mm(%5, %2) fwd \"l1\"\n"
      "op %7: f32[batch, 3] = aten::mul.Tensor(%6, %6) fwd \"l1\"\n"
      "op %8: f32[] = aten::sum(%7, none) fwd \"l1\"\n"
      "op %9: f32[batch, 3] = aten::mul.Scalar(%6, 2) bwd \"l1\"\n"
      "op %10: f32[3, batch] = aten::t(%5) bwd \"l1\"\n"
      "op %11: f32[3, 3] = aten::mm(%10, %9) bwd \"l1\"\n"
      "op %12: f32[3, 3] = aten::t(%2) bwd \"l1\"\n"
      "op %13: f32[batch, 3] = aten::mm(%9, %12) bwd \"l1\"\n"
      "op %14: f32[batch, 3] = aten::mul.Tensor(%13, %4) bwd \"{0}\"\n"
      "op %15: f32[3, batch] = aten::t(%0) bwd \"l0\"\n"
      "op %16: f32[3, 3] = aten::mm(%15, %14) bwd \"l0\"\n"
      "output loss %8\noutput gradient %16 of \"w0\"\noutput gradient %11 of \"w1\"\n",
      module));
}

/// The graph as the only stage of one device, as it is.
StagedStep uncut(const graph::Graph& graph, std::int64_t batch) {
  StagedStep step;
  step.passes = {{{0, batch}}, {0}, {{0, batch}}};
  StageGraph& stage = step.stages.emplace_back();
  stage.graph = graph;
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    stage.copies.push_back({OpId(static_cast<std::int64_t>(i)), 0, {0, batch}});
    stage.origins.emplace_back(static_cast<std::int64_t>(i));
    stage.positions.push_back(static_cast<std::int64_t>(i));
    stage.tasks.push_back(1);
  }
  return step;
}

/// The same where the graph draws numbers or changes buffers.
void expect_same_as_uncut(const StagedStep& step, const graph::Graph& graph, std::int64_t batch) {
  auto given = testing::draw_values(graph, batch, 5);
  if (given.contains("y")) given.at("y").at[0] = 0;  // at least one label counts
  const auto whole = testing::StagesRun(uncut(graph, batch), given, {{"batch", batch}}).run();
  const auto staged = testing::StagesRun(step, given).run();
  EXPECT_NEAR(staged.sums.loss, whole.sums.loss, 1e-9);
  ASSERT_EQ(staged.sums.gradients.size(), whole.sums.gradients.size());
  for (const auto& [name, gradient] : whole.sums.gradients)
    testing::expect_near(staged.sums.gradients.at(name), gradient, name);
  ASSERT_EQ(staged.updates.size(), whole.updates.size());
  for (const auto& [name, update] : whole.updates)
    testing::expect_near(staged.updates.at(name), update, name);
}

// A mask is drawn once for each micro-batch, of its samples (3, 2 and 2 of the first replica, 1 and
// 1 of the second), and kept for the backward pass.
TEST(StageGraphs, DrawsAreThoseOfTheWholeBatch) {
  const graph::Graph graph = step_with_mask("l0");
  plan::Plan plan =
      plan_of_replicas({{7, {modules_on(graph, 0, {"l0"}), modules_on(graph, 1, {"l1"})}, 3},
                        {2, {modules_on(graph, 2, {"l0"}), modules_on(graph, 3, {"l1"})}, 2}});
  const StagedStep step = cut_up(graph, plan);
  std::vector<std::pair<std::int64_t, std::int64_t>> drawn;
  for (const StageGraph& stage : step.stages)
    for (std::size_t i = 0; i < stage.graph.ops.size(); ++i)
      if (stage.graph.ops[i].name == "motley::random")
        drawn.emplace_back(stage.copies[i].stretch.first, stage.copies[i].stretch.count);
  EXPECT_THAT(drawn, ElementsAre(std::pair(0, 3), std::pair(3, 2), std::pair(5, 2), std::pair(7, 1),
                                 std::pair(8, 1)));
  expect_same_as_uncut(step, graph, 9);
  // Done again in the backward pass it draws the same.
  for (plan::Replica& replica : plan.replicas) replica.regions[0].recomputes = {{1, 2}};
  const StagedStep again = cut_up(graph, plan);
  EXPECT_EQ(work_in(again, 2),
            "slice slice | mm random mul | mm random mul | random' mul' t' mm' "
            "| random' mul' t' mm' add'");
  expect_same_as_uncut(again, graph, 9);
}

// The product with the mask is another stage's, in both passes: the mask is made there and nothing
// of it is passed on. Its device has l0, too, and takes turns: so it draws when l0's result has
// come, not before.
TEST(StageGraphs, AMaskOfADeviceWithSeveralRegionsIsMadeWhenItIsWanted) {
  const graph::Graph graph = step_with_mask("drop");
  const plan::Plan apart =
      plan_of_replicas({{4,
                         {modules_on(graph, 0, {"l0"}), modules_on(graph, 1, {"drop"}),
                          modules_on(graph, 2, {"l1"})},
                         1}});
  EXPECT_EQ(work_in(cut_up(graph, apart), 1), "random | mul | mul'");
  plan::Plan in_turns = apart;
  in_turns.replicas[0].regions[2].devices = {DeviceId(0)};
  const StagedStep step = cut_up(graph, in_turns);
  EXPECT_EQ(work_in(step, 1), "random mul | mul'");
  EXPECT_THAT(boundary_values_in(step), ElementsAre("0>1 mm", "1>2 mul", "2>1 mm'", "1>0 mul'"));
  expect_same_as_uncut(step, graph, 4);
}

// The slope of a square is made of the forward pass alone. It could come at once, and waits for the
// gradient that it is multiplied with.
TEST(StageGraphs, WhatABackwardPassMakesOfTheForwardPassWaits) {
  const graph::Graph graph = step_of_lines(
      "input %0: f32[batch, 3] \"x\"\nparam %1: f32[3, 3] \"w\"\ntangent %2: f32[]\n"
      "op %3: f32[batch, 3] = aten::mm(%0, %1) fwd \"l0\"\n"
      "op %4: f32[batch, 3] = aten::mul.Tensor(%3, %3) fwd \"l0\"\n"
      "op %5: f32[] = aten::sum(%4, none) fwd \"l1\"\n"
      "op %6: f32[batch, 3] = aten::expand(%2, [size(batch), 3], false) bwd \"l1\"\n"
      "op %7: f32[batch, 3] = aten::mul.Scalar(%3, 2) bwd \"l0\"\n"
      "op %8: f32[batch, 3] = aten::mul.Tensor(%6, %7) bwd \"l0\"\n"
      "op %9: f32[3, batch] = aten::t(%0) bwd \"l0\"\n"
      "op %10: f32[3, 3] = aten::mm(%9, %8) bwd \"l0\"\n"
      "output loss %5\noutput gradient %10 of \"w\"\n");
  const StagedStep step = cut_up(graph, two_stages_of(graph, 4, 1));
  EXPECT_EQ(work_in(step, 0), "mm mul | mul' mul' t' mm'");
  expect_same_step(step, graph, 4);
}

// But what another stage reads does not wait: the second stage multiplies with the slope, too, and
// the first one with what that gives.
TEST(StageGraphs, WhatAnotherStageReadsIsMadeAtOnce) {
  const graph::Graph graph = step_of_lines(
      "input %0: f32[batch, 3] \"x\"\nparam %1: f32[3, 3] \"w\"\ntangent %2: f32[]\n"
      "op %3: f32[batch, 3] = aten::mm(%0, %1) fwd \"l0\"\n"
      "op %4: f32[] = aten::sum(%3, none) fwd \"l1\"\n"
      "op %5: f32[batch, 3] = aten::mul.Scalar(%3, 2) bwd \"l0\"\n"
      "op %6: f32[batch, 3] = aten::mul.Tensor(%5, %2) bwd \"l1\"\n"
      "op %7: f32[batch, 3] = aten::mul.Tensor(%6, %5) bwd \"l0\"\n"
      "op %8: f32[3, batch] = aten::t(%0) bwd \"l0\"\n"
      "op %9: f32[3, 3] = aten::mm(%8, %7) bwd \"l0\"\n"
      "output loss %4\noutput gradient %9 of \"w\"\n");
  const StagedStep step = cut_up(graph, two_stages_of(graph, 4, 1));
  EXPECT_EQ(work_in(step, 0), "mm | mul' | mul' t' mm'");
  expect_same_step(step, graph, 4);
}

// In the second stage the gradient of its weight is a task of its own, behind what the first stage
// waits for; the first gives nobody a gradient, so that nothing of it is late.
TEST(StageGraphs, LateGradientsOfWeightsAreTasksOfTheirOwn) {
  const graph::Graph graph = layered_step({.layers = 2});
  plan::Plan plan = two_stages_of(graph, 4, 1);
  for (plan::Region& region : plan.replicas[0].regions) region.late_weights = true;
  const StagedStep step = cut_up(graph, plan);
  EXPECT_EQ(work_in(step, 0), "mm relu | threshold_backward' t' mm'");
  EXPECT_EQ(work_in(step, 1), "mm relu mul sum | mul' mul' threshold_backward' t' mm' | t' mm'");
  expect_same_step(step, graph, 4);
  // Of four micro-batches, too.
  plan.replicas[0].micro_batches = 4;
  expect_same_step(cut_up(graph, plan), graph, 4);
}

// Two stages that pair: the second micro-batch's forward task and the first one's backward task are
// one task, whose operators may take turns (OrderTasks.PairsOfTwoMicroBatches has the whole order).
TEST(StageGraphs, TasksThatAreDoneTogetherAreOne) {
  const graph::Graph graph = layered_step({.layers = 2});
  plan::Plan plan = two_stages_of(graph, 6, 3);
  for (plan::Region& region : plan.replicas[0].regions) region.turns = 2;
  plan.replicas[0].regions[0].ahead = 3;
  plan.replicas[0].regions[1].ahead = 1;
  const StagedStep step = cut_up(graph, plan);
  EXPECT_EQ(order_in_stages(step, {1}), "F0 F1B0 F2B1 B2");
  expect_same_step(step, graph, 6);
}

// The product is done again when its stage's backward task first reads it, on the samples that are
// kept; what the first stage has given is not given again.
TEST(StageGraphs, OperatorsThatAreDoneAgainStayInTheirStage) {
  const graph::Graph graph = layered_step({.layers = 2});
  for (const std::int64_t times : {1, 2}) {
    plan::Plan plan = two_stages_of(graph, 4, times);
    plan.replicas[0].regions[0].recomputes = {{0, 1}};
    const StagedStep step = cut_up(graph, plan);
    EXPECT_EQ(work_in(step, 0),
              times == 1 ? "mm relu | mm' threshold_backward' t' mm'"
                         : "slice slice | mm relu | mm relu | mm' threshold_backward' t' mm' | "
                           "mm' threshold_backward' t' mm' add'");
    EXPECT_EQ(static_cast<std::int64_t>(step.boundary_values.size()), 2 * times);
    expect_same_step(step, graph, 4);
  }
}

// A parameter that is gathered again is a source for each pass, and the parameter itself is there
// as well, which is updated.
TEST(StageGraphs, AParameterThatIsGatheredAgainIsASourceForEachPass) {
  const graph::Graph graph = layered_step({.layers = 2});
  plan::Plan plan = two_stages_of(graph, 4, 2);
  plan.replicas[0].regions[1].parameters = {{"w1", {graph::FormKind::kSharded, 0, 1, 3, 1}, true}};
  const StagedStep step = cut_up(graph, plan);
  EXPECT_EQ(sources_in(step, 0), "received received w0 x");
  EXPECT_EQ(sources_in(step, 1), "1 received received w1 w1 w1 w1 w1");
  EXPECT_EQ(outputs_in(step, 1), "loss w1");
  // The updated one is the first.
  const graph::Graph& second = step.stages[1].graph;
  for (const graph::Output& output : second.outputs) {
    if (output.of.is_none()) continue;
    for (std::size_t v = 0; v < output.of.index(); ++v) EXPECT_NE(second.values[v].name, "w1");
  }
  expect_same_step(step, graph, 4);
}

/// A buffer that l0 counts up and l1 multiplies with.
graph::Graph step_with_buffer() {
  return step_of_lines(
      "input %0: f32[batch, 3] \"x\"\nparam %1: f32[3] \"w\"\nbuffer %2: f32[] \"seen\"\n"
      "op %3: f32[] = aten::add.Scalar(%2, 1, 1) fwd \"l0\"\n"
      "op %4: f32[batch, 3] = aten::mul.Tensor(%0, %1) fwd \"l0\"\n"
      "op %5: f32[batch, 3] = aten::mul.Tensor(%4, %2) fwd \"l1\"\n"
      "op %6: f32[] = aten::sum(%5, none) fwd \"l1\"\n"
      "op %7: f32[batch, 3] = aten::mul.Tensor(%0, %2) bwd \"l1\"\n"
      "op %8: f32[1, 3] = aten::sum.dim_IntList(%7, [0], true, none) bwd \"l0\"\n"
      "op %9: f32[3] = aten::view(%8, [3]) bwd \"l0\"\n"
      "output loss %6\noutput gradient %9 of \"w\"\noutput update %3 of \"seen\"\n");
}

// All stages of a replica that have the buffer get its new value, once a step; each replica counts
// for itself.
TEST(StageGraphs, ABufferHasItsNewValueInEveryStageThatHasIt) {
  const graph::Graph graph = step_with_buffer();
  const StagedStep step = cut_up(
      graph,
      plan_of_replicas({{4, {modules_on(graph, 0, {"l0"}), modules_on(graph, 1, {"l1"})}, 2},
                        {2, {modules_on(graph, 2, {"l0"}), modules_on(graph, 3, {"l1"})}, 1}}));
  for (const std::size_t s : {0, 2}) {
    EXPECT_EQ(outputs_in(step, s), "w seen") << s;
    EXPECT_EQ(outputs_in(step, s + 1), "loss seen") << s;
  }
  const std::vector<std::string> boundary_values = boundary_values_in(step);
  EXPECT_EQ(std::count(boundary_values.begin(), boundary_values.end(), "0>1 add"), 1);
  EXPECT_EQ(std::count(boundary_values.begin(), boundary_values.end(), "2>3 add"), 1);
  EXPECT_EQ(boundary_values.size(), 2U + 2 * 2 + 2);
  expect_same_as_uncut(step, graph, 6);
}

// PyTorch's loop: micro-batch m has the buffer as m - 1 left it, in the second stage, too, which is
// given it m by m. Loss and gradient are sums over the micro-batches.
TEST(StageGraphs, ABufferGoesFromMicroBatchToMicroBatch) {
  const graph::Graph graph = step_with_buffer();
  plan::Plan plan =
      plan_of_replicas({{6, {modules_on(graph, 0, {"l0"}), modules_on(graph, 1, {"l1"})}, 3}});
  plan.batch_norm_span = plan::BatchNormSpan::kMicroBatch;
  const StagedStep step = cut_up(graph, plan);
  const auto given = testing::draw_values(graph, 6, 2);
  testing::StepValues wanted;
  for (std::int64_t m = 0; m < 3; ++m) {
    testing::NamedTensors now = given;
    now.at("x") = {{2, 3}, testing::rows_of(given.at("x").at, {1, 6, 3}, 2 * m, 2)};
    now.at("seen").at[0] += static_cast<double>(m);
    const testing::StepValues one = testing::run_graph(graph, 2, now);
    wanted.loss += one.loss;
    testing::Tensor& sum = wanted.gradients.try_emplace("w", testing::filled({3}, 0)).first->second;
    for (std::size_t i = 0; i < 3; ++i) sum.at[i] += one.gradients.at("w").at[i];
  }
  const testing::StagedValues found = testing::StagesRun(step, given).run();
  EXPECT_NEAR(found.sums.loss, wanted.loss, 1e-9);
  testing::expect_near(found.sums.gradients.at("w"), wanted.gradients.at("w"), "w");
  EXPECT_NEAR(found.updates.at("seen").at[0], given.at("seen").at[0] + 3, 1e-12);
}

/// x times the exponential of the mean of all samples (module "mean"), and a layer.
graph::Graph step_with_mean() {
  return step_of_lines(
      "input %0: f32[batch, 3] \"x\"\nparam %1: f32[3, 3] \"w\"\ntangent %2: f32[]\n"
      "op %3: f32[3] = aten::sum.dim_IntList(%0, [0], false, none) fwd \"mean\"\n"
      "op %4: f32[3] = aten::div.Scalar(%3, number(batch)) fwd \"mean\"\n"
      "op %5: f32[3] = aten::exp(%4) fwd \"mean\"\n"
      "op %6: f32[batch, 3] = aten::mul.Tensor(%0, %5) fwd \"l0\"\n"
      "op %7: f32[batch, 3] = aten::mm(%6, %1) fwd \"l0\"\n"
      "op %8: f32[] = aten::sum(%7, none) fwd \"l0\"\n"
      "op %9: f32[batch, 3] = aten::expand(%2, [size(batch), 3], false) bwd \"l0\"\n"
      "op %10: f32[3, batch] = aten::t(%6) bwd \"l0\"\n"
      "op %11: f32[3, 3] = aten::mm(%10, %9) bwd \"l0\"\n"
      "output loss %8\noutput gradient %11 of \"w\"\n");
}

// What all samples add up to is summed over the replicas first, by the stages that have the sum;
// what is made of it is passed on once.
TEST(StageGraphs, SumsOverAllSamplesComeFirst) {
  const graph::Graph graph = step_with_mean();
  const StagedStep step = cut_up(
      graph,
      plan_of_replicas({{4, {modules_on(graph, 0, {"mean"}), modules_on(graph, 1, {"l0"})}, 2},
                        {3, {modules_on(graph, 2, {"mean"}), modules_on(graph, 3, {"l0"})}, 1}}));
  EXPECT_EQ(work_in(step, 0), "slice slice sum sum div div add sum_replicas exp");
  EXPECT_EQ(work_in(step, 2), "slice sum div sum_replicas exp");
  EXPECT_THAT(boundary_values_in(step), ElementsAre("0>1 exp", "2>3 exp"));
  // One sum, which both take part in.
  EXPECT_EQ(step.stages[0].origins[7], step.stages[2].origins[3]);
  expect_same_step(step, graph, 7);
}

/// A mean over the labels that count (not class 2, by weights b), in module "loss".
graph::Graph step_with_labels() {
  return step_of_lines(
      "input %0: f32[batch, 3] \"x\"\ninput %1: i64[batch] \"y\"\nparam %2: f32[3, 3] \"w\"\n"
      "constant %3: f32[3] \"b\"\ntangent %4: f32[]\n"
      "op %5: f32[batch, 3] = aten::mm(%0, %2) fwd \"l0\"\n"
      "op %6: f32[batch, 3] = aten::_log_softmax(%5, 1, false) fwd \"loss\"\n"
      "op %7: f32[], %8: f32[] = aten::nll_loss_forward(%6, %1, %3, 1, 2) fwd \"loss\"\n"
      "op %9: f32[batch, 3] = aten::nll_loss_backward(%4, %6, %1, %3, 1, 2, %8) bwd \"loss\"\n"
      "op %10: f32[batch, 3] = aten::_log_softmax_backward_data(%9, %6, 1, dtype(f32)) bwd "
      "\"loss\"\n"
      "op %11: f32[3, batch] = aten::t(%0) bwd \"l0\"\n"
      "op %12: f32[3, 3] = aten::mm(%11, %10) bwd \"l0\"\n"
      "output loss %7\noutput gradient %12 of \"w\"\n");
}

// The labels of all replicas are counted before anything else, where the loss is; each
// micro-batch's sum is divided by that count.
TEST(StageGraphs, AMeanOverLabelsIsThatOfAllReplicas) {
  const graph::Graph graph = step_with_labels();
  const StagedStep step = cut_up(
      graph,
      plan_of_replicas({{5, {modules_on(graph, 0, {"l0"}), modules_on(graph, 1, {"loss"})}, 2},
                        {4, {modules_on(graph, 2, {"l0"}), modules_on(graph, 3, {"loss"})}, 4}}));
  for (const std::size_t s : {1, 3}) {
    const std::string work = work_in(step, s);
    const std::string first = work.substr(0, work.find(" |"));
    EXPECT_TRUE(first.ends_with(" sum_replicas")) << work;
    EXPECT_EQ(work.find("sum_replicas", first.size()), std::string::npos) << work;
    EXPECT_EQ(sources_in(step, s).substr(0, 3), "1 b") << sources_in(step, s);
  }
  expect_same_step(step, graph, 9);
}

// A gradient that is made of the mean alone is the first replica's; the second one does not need
// the mean, and gives its samples' part of it all the same.
TEST(StageGraphs, AllReplicasTakePartInASumThatOneNeeds) {
  const graph::Graph graph = step_of_lines(
      "input %0: f32[batch, 3] \"x\"\nparam %1: f32[3] \"w\"\nparam %2: f32[3] \"c\"\n"
      "op %3: f32[3] = aten::sum.dim_IntList(%0, [0], false, none) fwd \"l0\"\n"
      "op %4: f32[3] = aten::exp(%3) fwd \"l0\"\n"
      "op %5: f32[] = aten::sum(%0, none) fwd \"l1\"\n"
      "output loss %5\noutput gradient %4 of \"c\"\n");
  const StagedStep step = cut_up(
      graph,
      plan_of_replicas({{4, {modules_on(graph, 0, {"l0"}), modules_on(graph, 1, {"l1"})}, 1},
                        {3, {modules_on(graph, 2, {"l0"}), modules_on(graph, 3, {"l1"})}, 1}}));
  EXPECT_EQ(work_in(step, 0), "slice sum sum_replicas exp");
  EXPECT_EQ(work_in(step, 2), "slice sum sum_replicas");
  expect_same_step(step, graph, 7);
}

// The loss has a penalty of a weight that no sample meets: its gradient is the same in all
// replicas, and one of them has it.
TEST(StageGraphs, AGradientWithoutSamplesCountsOnce) {
  const graph::Graph graph = step_of_lines(
      "input %0: f32[batch, 3] \"x\"\nparam %1: f32[3] \"w\"\nparam %2: f32[3] \"c\"\n"
      "op %3: f32[batch, 3] = aten::mul.Tensor(%0, %1) fwd \"l0\"\n"
      "op %4: f32[] = aten::sum(%3, none) fwd \"l0\"\n"
      "op %5: f32[3] = aten::mul.Tensor(%2, %2) fwd \"l1\"\n"
      "op %6: f32[] = aten::sum(%5, none) fwd \"l1\"\n"
      "op %7: f32[] = aten::add.Tensor(%4, %6, 1) fwd \"l1\"\n"
      "op %8: f32[1, 3] = aten::sum.dim_IntList(%0, [0], true, none) bwd \"l0\"\n"
      "op %9: f32[3] = aten::view(%8, [3]) bwd \"l0\"\n"
      "op %10: f32[3] = aten::mul.Scalar(%2, 2) bwd \"l1\"\n"
      "output loss %7\noutput gradient %9 of \"w\"\noutput gradient %10 of \"c\"\n");
  for (const std::int64_t times : {1, 2}) {
    expect_same_step(cut_up(graph, two_stages_of(graph, 4, times)), graph, 4);
    const StagedStep step = cut_up(
        graph,
        plan_of_replicas({{4, {modules_on(graph, 0, {"l0"}), modules_on(graph, 1, {"l1"})}, times},
                          {2, {modules_on(graph, 2, {"l0"}), modules_on(graph, 3, {"l1"})}, 1}}));
    expect_same_step(step, graph, 6);
    // The second replica has the weight, as it adds zeros of the penalty's size to its loss.
    EXPECT_EQ(outputs_in(step, 3), "loss c");
  }
}

// Of the sum of products of two weights each is the gradient of the other: nobody makes them, and
// the first stage has them.
TEST(StageGraphs, AGradientThatNobodyMakesIsTheFirstStages) {
  const graph::Graph graph = step_of_lines(
      "input %0: f32[batch, 3] \"x\"\nparam %1: f32[3] \"b\"\nparam %2: f32[3] \"c\"\n"
      "op %3: f32[] = aten::sum(%0, none) fwd \"l0\"\n"
      "op %4: f32[3] = aten::mul.Tensor(%1, %2) fwd \"l1\"\n"
      "op %5: f32[] = aten::sum(%4, none) fwd \"l1\"\n"
      "op %6: f32[] = aten::add.Tensor(%3, %5, 1) fwd \"l1\"\n"
      "output loss %6\noutput gradient %2 of \"b\"\noutput gradient %1 of \"c\"\n");
  for (const std::int64_t times : {1, 2}) {
    const StagedStep step = cut_up(graph, two_stages_of(graph, 4, times));
    EXPECT_EQ(outputs_in(step, 0), "b c");
    EXPECT_EQ(outputs_in(step, 1), "loss b c");
    EXPECT_TRUE(work_in(step, 1).ends_with(" | zeros_like' zeros_like'")) << work_in(step, 1);
    expect_same_step(step, graph, 4);
  }
}

// Results of forward beside the loss are of no use to a step; what makes them may be nowhere.
TEST(StageGraphs, WhatNothingWantedDependsOnIsInNoStage) {
  const graph::Graph& mlp = read_graph("mlp");
  const auto extras = std::count_if(mlp.outputs.begin(), mlp.outputs.end(), [](const auto& each) {
    return each.kind == graph::OutputKind::kExtra;
  });
  ASSERT_EQ(extras, 1);
  const StagedStep step =
      cut_up(mlp, plan_of_replicas({{4,
                                     {modules_on(mlp, 0, {"net.0", "net.1", "net.2", "net.3"}),
                                      modules_on(mlp, 1, {"net.4", "net.5", ""})},
                                     2}}));
  EXPECT_EQ(outputs_in(step, 0), "net.1.weight net.1.bias net.3.weight net.3.bias");
  EXPECT_EQ(outputs_in(step, 1), "loss net.5.weight net.5.bias");
  const graph::Graph graph = step_of_lines(
      "input %0: f32[batch, 3] \"x\"\n"
      "op %1: f32[batch, 3] = aten::exp(%0) fwd \"dead\"\n"
      "op %2: f32[] = aten::sum(%0, none) fwd \"l0\"\noutput loss %2\noutput extra %1\n");
  EXPECT_EQ(work_in(cut_up(graph, two_stages_of(graph, 4, 1)), 0), "sum");
}

/// Two layers in two replicas of two stages.
plan::Plan four_stages_of(const graph::Graph& graph) {
  return plan_of_replicas(
      {{4, {modules_on(graph, 0, {"l0"}), modules_on(graph, 1, {"l1", "loss"})}, 1},
       {3, {modules_on(graph, 2, {"l0"}), modules_on(graph, 3, {"l1", "loss"})}, 1}});
}

// The graph has the operators 0 to 15; the last one, mm of l0, makes the gradient of w0.
TEST(StageGraphs, RegionsMustBeOfTheGraph) {
  const graph::Graph graph = layered_step({.layers = 2});
  ASSERT_EQ(graph.ops.size(), 16U);
  plan::Plan plan = four_stages_of(graph);
  plan.replicas[1].regions[1].covers.push_back({16, 17});
  EXPECT_EQ(cut_error(graph, plan),
            "plan.stale: plan: replica 1 has operator 16, the model has 16; plan again");
  plan = four_stages_of(graph);
  plan.replicas[1].regions[0].covers.back().end = 15;
  EXPECT_EQ(cut_error(graph, plan),
            "plan.stale: plan: operator 15, aten::mm in module 'l0', is in no region of replica 1; "
            "plan again");
  plan = four_stages_of(graph);
  plan.replicas[0].regions[1].recomputes = {{0, 2}, {12, 18}};
  EXPECT_EQ(cut_error(graph, plan),
            "plan.stale: plan: operator 17 is to be done again, the model has 16; plan again");
}

// As accumulate_replicas refuses it.
TEST(StageGraphs, WhatNeedsAllSamplesAtOnceHasOneMicroBatch) {
  const graph::Graph graph = step_of_lines(
      "input %0: f32[batch, 3] \"x\"\n"
      "op %1: f32[3] = aten::amax(%0, [0], false) fwd \"l0\"\n"
      "op %2: f32[] = aten::sum(%1, none) fwd \"l1\"\noutput loss %2\n");
  EXPECT_EQ(work_in(cut_up(graph, two_stages_of(graph, 4, 1)), 0), "amax");
  EXPECT_EQ(cut_error(graph, two_stages_of(graph, 4, 2)),
            "synth.accumulation: s: a step cannot be done in 2 micro-batches: operator aten::amax "
            "in module 'l0' needs all samples at once");
}

/// What holds of every step: each stage keeps to the order of the step, task by task, and has each
/// live operator's copies where its replica's plan says.
void expect_in_order(const StagedStep& step, const plan::Plan& plan) {
  EXPECT_TRUE(std::is_sorted(step.times.begin(), step.times.end()) || step.stages.size() > 1);
  EXPECT_TRUE(std::is_sorted(
      step.boundary_values.begin(), step.boundary_values.end(),
      [](const BoundaryValue& a, const BoundaryValue& b) { return a.position < b.position; }));
  for (const StageGraph& stage : step.stages) {
    EXPECT_TRUE(std::is_sorted(stage.positions.begin(), stage.positions.end()));
    EXPECT_TRUE(std::is_sorted(stage.tasks.begin(), stage.tasks.end()));
    for (std::size_t i = 0; i < stage.graph.ops.size(); ++i) {
      EXPECT_LT(stage.tasks[i], step.tasks);
      const OpId of = stage.copies[i].of;
      const auto& covers = stage.region->covers;
      EXPECT_TRUE(of.is_none() || covers.empty() ||
                  std::any_of(covers.begin(), covers.end(),
                              [&](const plan::OpRange& range) {
                                return range.first <= of.value && of.value < range.end;
                              }))
          << plan.replicas.size() << " replicas, operator " << of.value;
    }
  }
}

// However replicas are cut, and whatever is done again, late or gathered again.
TEST(StageGraphs, StagesOneAfterTheOtherComputeTheWholeStep) {
  const std::vector<graph::Graph> graphs = {layered_step({.layers = 3, .weights = 2}),
                                            step_with_view(),
                                            step_with_mask("drop"),
                                            step_with_buffer(),
                                            step_with_mean(),
                                            step_with_labels()};
  std::set<std::size_t> stages;
  for (std::uint64_t seed = 0; seed < testing::rounds(120, 3000); ++seed) {
    const graph::Graph& graph = graphs[seed % graphs.size()];
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const plan::Plan plan = StagesDraw(graph, seed).plan();
    const StagedStep step = cut_up(graph, plan);
    expect_in_order(step, plan);
    expect_same_as_uncut(step, graph, plan.global_batch);
    stages.insert(step.stages.size());
    if (HasFailure()) return;
  }
  EXPECT_GE(stages.size(), 8U);
}

}  // namespace
}  // namespace motley::synth
