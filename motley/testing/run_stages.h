#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "motley/synth/stages/stage_graphs.h"
#include "motley/testing/evaluate_pass.h"
#include "motley/testing/run_graph.h"

namespace motley::testing {

/// A step's results, with terms of several stages summed.
struct StagedValues {
  StepValues sums;
  NamedTensors updates;  ///< of buffers; identical in all stages
};

/// Runs a step's stages in the step's order, operator by operator: each finds its inputs, or a
/// value sent by another stage before. `sizes`: those that the graphs leave open.
class StagesRun {
 public:
  StagesRun(const synth::StagedStep& step, const NamedTensors& given, graph::Sizes sizes = {})
      : step_(step), sizes_(std::move(sizes)), values_(step.stages.size()) {
    for (std::size_t s = 0; s < step.stages.size(); ++s) place(s, given);
  }

  StagedValues run() {
    std::vector<std::tuple<std::int64_t, std::size_t, std::size_t>> order;  // position, stage, op
    for (std::size_t s = 0; s < step_.stages.size(); ++s)
      for (std::size_t op = 0; op < step_.stages[s].positions.size(); ++op)
        order.emplace_back(step_.stages[s].positions[op], s, op);
    std::sort(order.begin(), order.end());
    for (std::size_t i = 0; i < order.size() && !::testing::Test::HasFatalFailure(); ++i) {
      const auto [position, s, op] = order[i];
      compute(s, op);
      if (i + 1 == order.size() || std::get<0>(order[i + 1]) != position) pass_on(position);
    }
    EXPECT_EQ(passed_, step_.boundary_values.size())
        << "some boundary values have no operator before them";
    return ::testing::Test::HasFatalFailure() ? StagedValues{} : collect();
  }

 private:
  const synth::StageGraph& stage(std::size_t s) const { return step_.stages[s]; }

  void place(std::size_t s, const NamedTensors& given) {
    const plan::Stretch samples = step_.passes.replicas[stage(s).replica];
    const std::vector<graph::Value>& all = stage(s).graph.values;
    for (std::size_t v = 0; v < all.size(); ++v) {
      if (!all[v].producer.is_none() || all[v].role == graph::ValueRole::kActivation) continue;
      Tensor& here = values_[s][BufferId(static_cast<std::int64_t>(v))];
      here = all[v].role == graph::ValueRole::kTangent ? filled({}, 1) : given.at(all[v].name);
      if (all[v].role != graph::ValueRole::kInput) continue;
      const std::int64_t rows = here.shape[0], width = count_of(here.shape) / rows;
      here.at = rows_of(here.at, {1, rows, width}, samples.first, samples.count);
      here.shape[0] = samples.count;
    }
  }

  void compute(std::size_t s, std::size_t o) {
    const graph::Op& op = stage(s).graph.ops[o];
    graph::for_each_value(op.arguments, [&](ValueId value) {
      ASSERT_TRUE(values_[s].contains(BufferId(value.value)))
          << "stage " << s << ", operator " << o << " (" << op.name << ") reads what is not there";
    });
    if (::testing::Test::HasFatalFailure()) return;
    program::ArgumentList arguments;
    for (const auto& each : op.arguments) arguments.push_back(argument_of(each, sizes_));
    std::vector<Shape> shapes;
    for (const ValueId output : op.outputs) {
      Shape& shape = shapes.emplace_back();
      for (const graph::SizeExpr& size : stage(s).graph.value(output).shape)
        shape.push_back(size.evaluate_integer(sizes_));
    }
    const Results made = op.name == synth::kSumReplicas
                             ? sum_replicas(stage(s).origins[o])
                             : evaluate_pass({op.full_name(), arguments, values_[s], shapes},
                                             stage(s).copies[o].stretch.first);
    for (std::size_t r = 0; r < op.outputs.size(); ++r)
      values_[s][BufferId(op.outputs[r].value)] = made[r];
  }

  /// Sums the replicas' terms; one stage of each has one.
  Results sum_replicas(OpId origin) {
    std::optional<Tensor> sum;
    std::size_t terms = 0;
    for (std::size_t s = 0; s < step_.stages.size(); ++s)
      for (std::size_t o = 0; o < stage(s).origins.size(); ++o) {
        if (stage(s).origins[o] != origin) continue;
        const auto term = std::get<ValueId>(stage(s).graph.ops[o].arguments[0].value);
        add(sum, values_[s].at(BufferId(term.value)));
        ++terms;
      }
    EXPECT_EQ(terms, step_.passes.replicas.size());
    return {*sum};
  }

  static void add(std::optional<Tensor>& sum, const Tensor& term) {
    if (!sum) {
      sum = term;
      return;
    }
    ASSERT_EQ(sum->shape, term.shape);
    for (std::size_t i = 0; i < term.at.size(); ++i) sum->at[i] += term.at[i];
  }

  void pass_on(std::int64_t position) {
    for (; passed_ < step_.boundary_values.size() &&
           step_.boundary_values[passed_].position == position;
         ++passed_) {
      const synth::BoundaryValue& boundary_value = step_.boundary_values[passed_];
      const auto made = values_[boundary_value.from].find(BufferId(boundary_value.made.value));
      ASSERT_NE(made, values_[boundary_value.from].end())
          << "boundary value " << passed_ << " has nothing";
      values_[boundary_value.to][BufferId(boundary_value.read.value)] = made->second;
    }
  }

  StagedValues collect() const {
    StagedValues all;
    std::map<std::string, std::optional<Tensor>> sums;
    for (std::size_t s = 0; s < step_.stages.size(); ++s)
      for (const graph::Output& output : stage(s).graph.outputs) {
        const Tensor& value = values_[s].at(BufferId(output.value.value));
        const std::string name = output.of.is_none() ? "" : stage(s).graph.value(output.of).name;
        if (output.kind == graph::OutputKind::kLoss) all.sums.loss += value.at[0];
        if (output.kind == graph::OutputKind::kGradient) add(sums[name], value);
        if (output.kind != graph::OutputKind::kUpdate) continue;
        expect_near(value, all.updates.emplace(name, value).first->second, name);
      }
    for (const auto& [name, sum] : sums) all.sums.gradients[name] = *sum;
    return all;
  }

  const synth::StagedStep& step_;
  const graph::Sizes sizes_;
  std::vector<std::map<BufferId, Tensor>> values_;  // by stage
  std::size_t passed_ = 0;                          // boundary values so far
};

}  // namespace motley::testing
