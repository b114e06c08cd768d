#include "motley/synth/ranks/accumulation.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "motley/graph/graph_text.h"
#include "motley/program/memory.h"
#include "motley/testing/golden.h"
#include "motley/testing/run_program.h"

namespace motley::synth {
namespace {

std::int64_t count(const graph::Graph& graph, const std::string& name) {
  return std::count_if(graph.ops.begin(), graph.ops.end(),
                       [&](const graph::Op& op) { return op.full_name() == name; });
}

TEST(Accumulation, CopiesWhatWorksOnSamplesAndAddsItUp) {
  const graph::Graph& graph = read_graph("mlp");
  const auto made = accumulate(graph, 12, 3);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->copies.size(), made->graph.ops.size());
  for (const char* product : {"aten::addmm", "aten::mm"})
    EXPECT_EQ(count(made->graph, product), 3 * count(graph, product)) << product;
  // Views of weights occur once.
  EXPECT_GT(count(graph, "aten::t"), 0);
  EXPECT_LT(count(made->graph, "aten::t"), 3 * count(graph, "aten::t"));
  // Loss and gradients of three micro-batches, and their labels; other outputs are dropped.
  const std::int64_t wanted = std::count_if(
      graph.outputs.begin(), graph.outputs.end(),
      [](const graph::Output& output) { return output.kind != graph::OutputKind::kExtra; });
  const std::int64_t sums = wanted + 1;
  EXPECT_EQ(count(made->graph, "aten::add.Tensor") - 3 * count(graph, "aten::add.Tensor"),
            2 * sums);
  EXPECT_EQ(static_cast<std::int64_t>(made->graph.outputs.size()), wanted);
  const auto read = graph::parse_graph(graph::print_graph(made->graph), "made");
  // A valid graph except for its inputs, which have all samples.
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message,
            "made: input %0 \"x\": found dimension 0 batch*3, wanted batch\n"
            "made: input %1 \"y\": found dimension 0 batch*3, wanted batch");
}

TEST(Accumulation, OneMicroBatchIsTheGraphWithItsSums) {
  const auto made = accumulate(read_graph("mlp"), 12, 1);
  ASSERT_TRUE(made) << made.error().message;
  for (const Copy& copy : made->copies) EXPECT_EQ(copy.micro_batch, 0);
}

TEST(Accumulation, NeedsEqualMicroBatchesThatTheModelTakes) {
  const graph::Graph& graph = read_graph("mlp");
  const auto uneven = accumulate(graph, 10, 3);
  ASSERT_FALSE(uneven);
  EXPECT_EQ(uneven.error().code, "synth.accumulation");
  EXPECT_EQ(uneven.error().message,
            graph.name + ": a step cannot be done in 3 micro-batches: the global batch is 10");
  graph::Graph large = graph;
  large.sizes[0].min = 5;
  EXPECT_EQ(accumulate(large, 12, 3).error().message,
            graph.name +
                ": a step cannot be done in 3 micro-batches: the model's batches are not as small "
                "as 4");
}

TEST(Accumulation, NumbersAreThoseOfTheWholeBatch) {
  auto graph = graph::parse_graph(
      "motley.graph/1\nname \"n\"\nsize batch 1 64\n"
      "input %0: f32[batch, 3] \"x\"\nparam %1: f32[3, 3] \"a\"\n"
      "op %2: f32[batch, 3] = aten::mm(%0, %1) fwd \"\"\n"
      "op %3: f32[] = aten::sum(%2, none) fwd \"\"\n"
      "op %4: f32[] = aten::div.Scalar(%3, number(batch*3)) fwd \"\"\n"
      "op %5: f32[3, batch] = aten::t(%0) bwd \"\"\n"
      "op %6: f32[3, 3] = aten::mm(%5, %2) bwd \"\"\n"
      "output loss %4\noutput gradient %6 of \"a\"\n",
      "n");
  ASSERT_TRUE(graph) << graph.error().message;
  const auto made = accumulate(*graph, 8, 4);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_NE(graph::print_graph(made->graph).find("number(batch*4*3)"), std::string::npos)
      << graph::print_graph(made->graph);
}

/// Sources x [batch, 3], labels y, w [3, 3], b [3], tangent %4; then operators from %5 on.
graph::Graph step_of(const std::string& rest) {
  auto graph = graph::parse_graph(
      "motley.graph/1\nname \"s\"\nsize batch 1 64\n"
      "input %0: f32[batch, 3] \"x\"\ninput %1: i64[batch] \"y\"\n"
      "param %2: f32[3, 3] \"w\"\nparam %3: f32[3] \"b\"\ntangent %4: f32[]\n" +
          rest,
      "s");
  EXPECT_TRUE(graph) << graph.error().message;
  return *std::move(graph);
}

/// A layer with its loss summed over the samples.
constexpr const char* kSummedLayer =
    "op %5: f32[batch, 3] = aten::mm(%0, %2) fwd \"l\"\n"
    "op %6: f32[batch, 3] = aten::relu(%5) fwd \"l\"\n"
    "op %7: f32[] = aten::sum(%6, none) fwd \"\"\n"
    "op %8: f32[batch, 3] = aten::expand(%4, [size(batch), 3], false) bwd \"\"\n"
    "op %9: f32[batch, 3] = aten::threshold_backward(%8, %5, 0) bwd \"l\"\n"
    "op %10: f32[3, batch] = aten::t(%0) bwd \"l\"\n"
    "op %11: f32[3, 3] = aten::mm(%10, %9) bwd \"l\"\n"
    "output loss %7\noutput gradient %11 of \"w\"\n";

/// Each step has a difference between a micro-batch and the batch: a mean and the divisor of its
/// gradient; a mean over the samples, needed before any micro-batch; a term added once to a sum
/// over samples; a mean over labels that count.
const std::vector<std::string> kSteps = {
    kSummedLayer,
    "op %5: f32[batch, 3] = aten::mm(%0, %2) fwd \"\"\n"
    "op %6: f32[] = aten::mean(%5, none) fwd \"\"\n"
    "op %7: f32[] = aten::div.Scalar(%4, number(batch*3)) bwd \"\"\n"
    "op %8: f32[batch, 3] = aten::expand(%7, [size(batch), 3], false) bwd \"\"\n"
    "op %9: f32[3, batch] = aten::t(%0) bwd \"\"\n"
    "op %10: f32[3, 3] = aten::mm(%9, %8) bwd \"\"\n"
    "output loss %6\noutput gradient %10 of \"w\"\n",
    "op %5: f32[3] = aten::sum.dim_IntList(%0, [0], false, none) fwd \"\"\n"
    "op %6: f32[3] = aten::div.Scalar(%5, number(batch)) fwd \"\"\n"
    "op %7: f32[3] = aten::exp(%6) fwd \"\"\n"
    "op %8: f32[batch, 3] = aten::mul.Tensor(%0, %7) fwd \"\"\n"
    "op %9: f32[batch, 3] = aten::mm(%8, %2) fwd \"\"\n"
    "op %10: f32[] = aten::sum(%9, none) fwd \"\"\n"
    "output loss %10\n",
    "op %5: f32[batch, 3] = aten::mm(%0, %2) fwd \"\"\n"
    "op %6: f32[3] = aten::sum.dim_IntList(%5, [0], false, none) fwd \"\"\n"
    "op %7: f32[3] = aten::add.Tensor(%6, %3, 1) fwd \"\"\n"
    "op %8: f32[] = aten::sum(%7, none) fwd \"\"\n"
    "output loss %8\noutput gradient %7 of \"b\"\n",
    "op %5: f32[batch, 3] = aten::mm(%0, %2) fwd \"\"\n"
    "op %6: f32[batch, 3] = aten::_log_softmax(%5, 1, false) fwd \"\"\n"
    "op %7: f32[], %8: f32[] = aten::nll_loss_forward(%6, %1, %3, 1, 2) fwd \"\"\n"
    "op %9: f32[batch, 3] = aten::nll_loss_backward(%4, %6, %1, %3, 1, 2, %8) bwd \"\"\n"
    "op %10: f32[3, batch] = aten::t(%0) bwd \"\"\n"
    "op %11: f32[3, 3] = aten::mm(%10, %9) bwd \"\"\n"
    "output loss %7\noutput gradient %11 of \"w\"\n",
};

TEST(Accumulation, GivesWhatTheWholeBatchGives) {
  constexpr std::int64_t kWholeBatch = 12;
  for (const std::string& text : kSteps) {
    const graph::Graph graph = step_of(text);
    const auto given = testing::draw_values(graph, kWholeBatch, 1);
    const testing::StepValues whole = testing::run_graph(graph, kWholeBatch, given);
    for (const std::int64_t times : {1, 2, 3, 12}) {
      SCOPED_TRACE(std::to_string(times) + " micro-batches of\n" + text);
      const auto made = accumulate(graph, kWholeBatch, times);
      ASSERT_TRUE(made) << made.error().message;
      const testing::StepValues step = testing::run_graph(made->graph, kWholeBatch / times, given);
      EXPECT_NEAR(step.loss, whole.loss, 1e-9);
      ASSERT_EQ(step.gradients.size(), whole.gradients.size());
      for (const auto& [name, gradient] : whole.gradients)
        testing::expect_near(step.gradients.at(name), gradient, name);
    }
  }
}

// Rows 0 to 3 of 8 are in the first micro-batch, 4 to 7 in the second, where local rows are numbers
// less 4. With two rows per sample, from 5 on: 5 to 12 and 13 to 20.
TEST(Accumulation, CountsRowsThroughTheMicroBatches) {
  const auto made = accumulate(
      step_of(
          "op %5: f32[batch, 3] = aten::mm(%0, %2) fwd \"\"\n"
          "op %6: i64[batch] = aten::arange(size(batch), none, none, none, none) fwd \"\"\n"
          "op %7: f32[batch] = aten::index.Tensor(%5, [%6, %1]) fwd \"\"\n"
          "op %8: i64[2*batch] = aten::arange.start(5, size(2*batch+5), none, none, none, none) "
          "fwd \"\"\n"
          "op %9: i64[batch, 2] = aten::view(%8, [size(batch), 2]) fwd \"\"\n"
          "op %10: f32[] = aten::sum(%7, none) fwd \"\"\n"
          "op %11: i64[] = aten::sum(%9, none) fwd \"\"\n"
          "op %12: f32[] = aten::add.Tensor(%10, %11, 1) fwd \"\"\noutput loss %12\n"),
      8, 2);
  ASSERT_TRUE(made) << made.error().message;
  std::vector<std::vector<std::int64_t>> ranges;
  std::vector<std::int64_t> less;
  for (const graph::Op& op : made->graph.ops) {
    const auto size = [&](std::size_t argument) {
      return std::get<graph::SizeArgument>(op.arguments[argument].value)
          .expr.evaluate_integer({{"batch", 4}});
    };
    if (op.full_name() == "aten::arange.start") ranges.push_back({size(0), size(1)});
    if (op.full_name() == "aten::sub.Scalar") less.push_back(size(1));
  }
  EXPECT_EQ(ranges, (std::vector<std::vector<std::int64_t>>{{0, 4}, {5, 13}, {4, 8}, {13, 21}}));
  EXPECT_EQ(less, std::vector<std::int64_t>{4});
}

/// Values of a wrong batch size would fail here; one device has nothing.
TEST(Accumulation, RunsOverDevicesAsTheWholeBatchDoesAlone) {
  for (const std::string& text : kSteps) {
    const graph::Graph graph = step_of(text);
    for (const std::vector<double>& shares : {std::vector<double>{2, 1}, {3, 0, 1}})
      for (const Kept kept : {Kept::kWhole, Kept::kInParts}) {
        SCOPED_TRACE(text);
        Sharding sharding;
        sharding.shares = shares;
        for (std::size_t i = 0; i < shares.size(); ++i)
          sharding.devices.push_back("a:" + std::to_string(i));
        sharding.batch = 4;
        sharding.micro_batches = 3;
        spread_samples(graph, sharding);
        if (kept == Kept::kInParts) keep_parameters_in_parts(graph, sharding);
        const auto program = lower_sharded(graph, sharding, {});
        ASSERT_TRUE(program) << program.error().message;
        EXPECT_EQ(program->global_batch, 12);
        testing::expect_runs_as(*program, graph, 3);
      }
  }
}

// The cut of x: a view and two selects. Each micro-batch's operators run before the next one's, so
// that its activations are freed; in the second one the sums follow their terms.
TEST(Accumulation, DoesOneMicroBatchAfterTheOther) {
  const auto made = accumulate(step_of(kSummedLayer), 4, 2);
  ASSERT_TRUE(made) << made.error().message;
  std::string order;
  for (std::size_t i = 0; i < made->graph.ops.size(); ++i) {
    const Copy& copy = made->copies[i];
    order += copy.of.is_none() ? " " + made->graph.ops[i].name.substr(6)
                               : fmt::format(" {}.{}", copy.of.value, copy.micro_batch);
  }
  EXPECT_EQ(order,
            " view select select view select select"  // x and y
            " 0.0 1.0 2.0 3.0 4.0 5.0 6.0"
            " 0.1 1.1 2.1 add 3.1 4.1 5.1 6.1 add");
}

// A whole step keeps %5 and the relu's input, [64, 3], until the backward pass; in 8 micro-batches
// it keeps [8, 3] at a time.
TEST(Accumulation, HoldsTheActivationsOfOneMicroBatch) {
  const graph::Graph graph = step_of(kSummedLayer);
  const auto activations = [&](std::int64_t times) {
    Sharding sharding;
    sharding.devices = {"a:0"};
    sharding.shares = {1};
    sharding.batch = 64 / times;
    sharding.micro_batches = times;
    spread_samples(graph, sharding);
    const auto program = lower_sharded(graph, sharding, {});
    EXPECT_TRUE(program) << program.error().message;
    return program::find_memory_peak(program->devices[0]).activations.value;
  };
  const std::int64_t whole = activations(1);
  EXPECT_GE(whole, 2 * 64 * 3 * 4);  // an operator's operand and its result
  EXPECT_LT(activations(8), whole / 4);
}

// The maximum of all samples, which is not read.
TEST(Accumulation, WhatNothingWantedDependsOnIsNotThere) {
  const auto made = accumulate(step_of("op %5: f32[3] = aten::amax(%0, [0], false) fwd \"\"\n"
                                       "op %6: f32[] = aten::sum(%0, none) fwd \"\"\n"
                                       "output loss %6\n"),
                               8, 2);
  ASSERT_TRUE(made) << made.error().message;
  for (const graph::Op& op : made->graph.ops) EXPECT_NE(op.name, "aten::amax");
}

constexpr plan::BatchNormSpan kEachByItself = plan::BatchNormSpan::kMicroBatch;

/// Takes a micro-batch's samples out of a step's.
testing::NamedTensors stretch(testing::NamedTensors given, std::int64_t m, std::int64_t times) {
  for (const char* name : {"x", "y"}) {
    testing::Tensor& all = given.at(name);
    const std::int64_t rows = all.shape[0] / times;
    const std::int64_t width = testing::count_of(all.shape) / all.shape[0];
    all.at = testing::rows_of(all.at, {1, all.shape[0], width}, m * rows, rows);
    all.shape[0] = rows;
  }
  return given;
}

// PyTorch's loop: each micro-batch as a batch; its loss counts 1 / times, or fully if it is a sum.
TEST(Accumulation, ALoopGivesWhatItsMicroBatchesGiveOneByOne) {
  const std::vector<bool> is_sum = {true, false, false, true, false};
  for (std::size_t s = 0; s < kSteps.size(); ++s) {
    const graph::Graph graph = step_of(kSteps[s]);
    const auto given = testing::draw_values(graph, 12, 1);
    for (const std::int64_t times : {2, 3}) {
      SCOPED_TRACE(std::to_string(times) + " micro-batches of\n" + kSteps[s]);
      const auto made = accumulate(graph, 12, times, kEachByItself);
      ASSERT_TRUE(made) << made.error().message;
      EXPECT_EQ(made->part, is_sum[s] ? 1 : 1.0 / static_cast<double>(times));
      double loss = 0;
      testing::NamedTensors gradients;
      for (std::int64_t m = 0; m < times; ++m) {
        const auto one = testing::run_graph(graph, 12 / times, stretch(given, m, times));
        loss += made->part * one.loss;
        for (const auto& [name, gradient] : one.gradients) {
          auto& sum = gradients.try_emplace(name, testing::filled(gradient.shape, 0)).first->second;
          for (std::size_t i = 0; i < sum.at.size(); ++i) sum.at[i] += made->part * gradient.at[i];
        }
      }
      const testing::StepValues step = testing::run_graph(made->graph, 12 / times, given);
      EXPECT_NEAR(step.loss, loss, 1e-9);
      ASSERT_EQ(step.gradients.size(), gradients.size());
      for (const auto& [name, gradient] : gradients)
        testing::expect_near(step.gradients.at(name), gradient, name);
    }
  }
}

/// Batch norm of %5, which updates the statistics %10 and %11 and a count of batches.
graph::Graph normed(const std::string& rest) {
  auto graph = graph::parse_graph(
      "motley.graph/1\nname \"s\"\nsize batch 1 64\n"
      "input %0: f32[batch, 3] \"x\"\nparam %1: f32[3] \"w\"\nbuffer %2: f32[3] \"mean\"\n"
      "buffer %3: f32[3] \"var\"\nbuffer %4: i64[] \"seen\"\ntangent %5: f32[]\n"
      "op %6: i64[] = aten::add.Tensor(%4, 1, 1) fwd \"\"\n"
      "op %7: f32[batch, 3], %8: f32[3], %9: f32[3], %10: f32[3], %11: f32[3] = "
      "aten::_native_batch_norm_legit_functional(%0, %1, none, %2, %3, true, 0.1, 1e-05) fwd "
      "\"norm\"\n"
      "op %12: f32[] = aten::sum(%7, none) fwd \"\"\n"
      "op %13: f32[batch, 3] = aten::expand(%5, [size(batch), 3], false) bwd \"\"\n"
      "op %14: none, %15: f32[3], %16: none = aten::native_batch_norm_backward(%13, %0, %1, %10, "
      "%11, %8, %9, true, 1e-05, [false, true, false]) bwd \"norm\"\n" +
          rest,
      "s");
  EXPECT_TRUE(graph) << graph.error().message;
  return *std::move(graph);
}

constexpr const char* kNormedOutputs =
    "output loss %12\noutput gradient %15 of \"w\"\noutput update %10 of \"mean\"\n"
    "output update %11 of \"var\"\noutput update %6 of \"seen\"\n";

std::vector<graph::Op> copies_of(const Accumulation& made, std::int64_t op) {
  std::vector<graph::Op> found;
  for (std::size_t i = 0; i < made.copies.size(); ++i)
    if (made.copies[i].of == OpId(op)) found.push_back(made.graph.ops[i]);
  return found;
}

TEST(Accumulation, BatchNormOfEachMicroBatchGoesOnFromTheOneBefore) {
  const graph::Graph graph = normed(kNormedOutputs);
  EXPECT_TRUE(trains_batch_norm(graph));
  EXPECT_FALSE(trains_batch_norm(read_graph("mlp")));
  const auto made = accumulate(graph, 12, 3, kEachByItself);
  ASSERT_TRUE(made) << made.error().message;
  const auto counts = copies_of(*made, 0), norms = copies_of(*made, 1);
  const auto backwards = copies_of(*made, 4);
  ASSERT_EQ(counts.size(), 3U);
  ASSERT_EQ(norms.size(), 3U);
  ASSERT_EQ(backwards.size(), 3U);
  const auto read = [](const graph::Op& op, std::size_t argument) {
    return std::get<ValueId>(op.arguments[argument].value);
  };
  EXPECT_EQ(read(norms[0], 3), ValueId(2));
  EXPECT_EQ(read(counts[0], 0), ValueId(4));
  for (std::size_t m = 0; m < 3; ++m) {
    EXPECT_EQ(read(backwards[m], 5), norms[m].outputs[1]);  // its own statistics
    if (m == 0) continue;
    EXPECT_EQ(read(norms[m], 3), norms[m - 1].outputs[3]);
    EXPECT_EQ(read(norms[m], 4), norms[m - 1].outputs[4]);
    EXPECT_EQ(read(counts[m], 0), counts[m - 1].outputs[0]);
  }
  for (const graph::Output& output : made->graph.outputs) {
    if (output.kind != graph::OutputKind::kUpdate) continue;
    EXPECT_EQ(output.value, output.of == ValueId(4)   ? counts[2].outputs[0]
                            : output.of == ValueId(3) ? norms[2].outputs[4]
                                                      : norms[2].outputs[3]);
  }
}

// As terms over three devices; the second has no samples.
TEST(Accumulation, BatchNormOfEachMicroBatchIsOverAllDevices) {
  const graph::Graph graph = normed(kNormedOutputs);
  Sharding sharding;
  sharding.devices = {"a:0", "a:1", "a:2"};
  sharding.shares = {2, 0, 1};
  sharding.batch = 6;
  sharding.micro_batches = 2;
  spread_samples(graph, sharding);
  LowerOptions options;
  EXPECT_EQ(lower_sharded(graph, sharding, options).error().message,
            "s: a step cannot be done in 2 micro-batches: operator "
            "aten::_native_batch_norm_legit_functional in module 'norm' needs all samples at once, "
            "and 1 more");
  options.batch_norm_span = kEachByItself;
  const auto program = lower_sharded(graph, sharding, options);
  ASSERT_TRUE(program) << program.error().message;
  for (const program::DeviceProgram& device : program->devices) {
    std::vector<std::int64_t> elements;
    for (const program::Instruction& each : device.instructions)
      if (each.op == "motley::batch_norm")
        elements.push_back(std::get<std::int64_t>(
            std::get<program::NumberArgument>(each.arguments[6].value).value));
    EXPECT_EQ(elements, (std::vector<std::int64_t>{6, 6}));
  }
}

TEST(Accumulation, ALoopStillNeedsAllSamplesForWhatElseDoes) {
  const graph::Graph graph = normed(
      "op %17: f32[3] = aten::amax(%7, [0], false) fwd \"top\"\n"
      "op %18: f32[] = aten::sum(%17, none) fwd \"\"\noutput loss %18\n");
  EXPECT_EQ(
      accumulate(graph, 8, 2, kEachByItself).error().message,
      "s: a step cannot be done in 2 micro-batches: operator aten::amax in module 'top' needs "
      "all samples at once");
}

TEST(Accumulation, NamesWhatNeedsAllSamplesAtOnce) {
  const auto refused = [](const std::string& rest) {
    const auto made = accumulate(step_of(rest), 8, 2);
    EXPECT_FALSE(made) << rest;
    return made ? "" : made.error().message;
  };
  const std::string start = "s: a step cannot be done in 2 micro-batches: ";
  // The maximum of all samples; a value made of a sum of products before the sum is complete.
  EXPECT_EQ(refused("op %5: f32[3] = aten::amax(%0, [0], false) fwd \"top\"\n"
                    "op %6: f32[] = aten::sum(%5, none) fwd \"\"\noutput loss %6\n"),
            start + "operator aten::amax in module 'top' needs all samples at once");
  EXPECT_EQ(refused("op %5: f32[batch, 3] = aten::mm(%0, %2) fwd \"\"\n"
                    "op %6: f32[3] = aten::sum.dim_IntList(%5, [0], false, none) fwd \"\"\n"
                    "op %7: f32[3] = aten::exp(%6) fwd \"power\"\n"
                    "op %8: f32[] = aten::sum(%7, none) fwd \"\"\noutput loss %8\n"),
            start + "operator aten::exp in module 'power' needs all samples at once");
  EXPECT_EQ(refused("op %5: f32[3] = aten::amax(%0, [0], false) fwd \"top\"\n"
                    "op %6: f32[3] = aten::amin(%0, [0], false) fwd \"bottom\"\n"
                    "op %7: f32[3] = aten::add.Tensor(%5, %6, 1) fwd \"\"\n"
                    "op %8: f32[] = aten::sum(%7, none) fwd \"\"\noutput loss %8\n"),
            start + "operator aten::amax in module 'top' needs all samples at once, and 1 more");
  // A buffer's new value is not accumulated; nor is anything but a sum.
  const auto updated = graph::parse_graph(
      "motley.graph/1\nname \"s\"\nsize batch 1 64\ninput %0: f32[batch, 3] \"x\"\n"
      "buffer %1: f32[3] \"seen\"\n"
      "op %2: f32[3] = aten::sum.dim_IntList(%0, [0], false, none) fwd \"\"\n"
      "op %3: f32[] = aten::sum(%2, none) fwd \"\"\n"
      "output loss %3\noutput update %2 of \"seen\"\n",
      "s");
  ASSERT_TRUE(updated) << updated.error().message;
  EXPECT_EQ(accumulate(*updated, 8, 2).error().message,
            start + "output 2 is not a sum over samples");
  const std::string order =
      "op %5: i64[batch] = motley::random(\"permutation\", [size(batch)], "
      "dtype(i64), 0) fwd \"mix\"\n";
  EXPECT_EQ(
      refused(order + "op %6: f32[batch, 3] = aten::index.Tensor(%0, [%5]) fwd \"\"\n"
                      "op %7: f32[] = aten::sum(%6, none) fwd \"\"\noutput loss %7\n"),
      start + "operator motley::random in module 'mix' permutes all samples at once, and 1 more");
  // A micro-batch has no part of a square of samples.
  EXPECT_EQ(refused("op %5: f32[batch, batch] = motley::random(\"uniform\", [size(batch), "
                    "size(batch)], dtype(f32), 0) fwd \"mix\"\n"
                    "op %6: f32[] = aten::sum(%5, none) fwd \"\"\noutput loss %6\n"),
            start + "operator motley::random in module 'mix' needs all samples at once");
}

}  // namespace
}  // namespace motley::synth
