#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "motley/base/random.h"
#include "motley/graph/graph_text.h"
#include "motley/testing/evaluate_operator.h"

namespace motley::testing {

/// A step's inputs, parameters and constants, whole, by name.
using NamedTensors = std::map<std::string, Tensor>;
struct StepValues {
  double loss = 0;
  NamedTensors gradients;  ///< by parameter
};

/// Draws small random numbers; 0 to 2 for integers.
inline NamedTensors draw_values(const graph::Graph& graph, std::int64_t batch, std::uint64_t seed) {
  SplitMix64 random(seed);
  NamedTensors drawn;
  for (const graph::Value& value : graph.values) {
    if (value.role == graph::ValueRole::kActivation || value.role == graph::ValueRole::kTangent)
      continue;
    Shape shape;
    for (const graph::SizeExpr& size : value.shape)
      shape.push_back(size.evaluate_integer({{"batch", batch}}));
    Tensor& tensor = drawn[value.name] = filled(std::move(shape), 0);
    for (double& each : tensor.at)
      each = is_floating(value.dtype) ? 2 * random.uniform() - 1
                                      : static_cast<double>(random.below(3));
  }
  return drawn;
}

/// Converts a graph's argument to a program's; values become buffers of the same number.
inline program::Argument argument_of(const graph::SymbolicArgument& argument,
                                     const graph::Sizes& sizes) {
  if (const auto* id = std::get_if<ValueId>(&argument.value)) return {BufferId(id->value)};
  if (const auto* size = std::get_if<graph::SizeArgument>(&argument.value))
    return {size->expr.evaluate_integer(sizes)};
  if (const auto* number = std::get_if<graph::SymbolicNumber>(&argument.value))
    return {program::NumberArgument{number->expr.evaluate(sizes)}};
  if (const auto* list = std::get_if<graph::SymbolicArguments>(&argument.value)) {
    program::ArgumentList made;
    for (const graph::SymbolicArgument& each : *list) made.push_back(argument_of(each, sizes));
    return {made};
  }
  if (const auto* flag = std::get_if<bool>(&argument.value)) return {*flag};
  if (const auto* whole = std::get_if<std::int64_t>(&argument.value)) return {*whole};
  if (const auto* real = std::get_if<double>(&argument.value)) return {*real};
  return {NoneArgument{}};  // nothing here depends on words
}

/// Evaluates all operators at a batch; results by value.
inline std::map<BufferId, Tensor> evaluate_graph(const graph::Graph& graph, std::int64_t batch,
                                                 const NamedTensors& given) {
  const graph::Sizes sizes{{"batch", batch}};
  std::map<BufferId, Tensor> values;
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const graph::Value& value = graph.values[v];
    const BufferId id(static_cast<std::int64_t>(v));
    if (value.role == graph::ValueRole::kTangent)
      values[id] = filled({}, 1);
    else if (value.producer.is_none())
      values[id] = given.at(value.name);
  }
  for (const graph::Op& op : graph.ops) {
    program::ArgumentList arguments;
    for (const auto& each : op.arguments) arguments.push_back(argument_of(each, sizes));
    std::vector<Shape> shapes;
    for (const ValueId output : op.outputs) {
      Shape& shape = shapes.emplace_back();
      for (const graph::SizeExpr& size : graph.value(output).shape)
        shape.push_back(size.evaluate_integer(sizes));
    }
    const Results made = evaluate({op.full_name(), arguments, values, shapes});
    for (std::size_t r = 0; r < op.outputs.size(); ++r)
      values[BufferId(op.outputs[r].value)] = made[r];
  }
  return values;
}

inline StepValues run_graph(const graph::Graph& graph, std::int64_t batch,
                            const NamedTensors& given) {
  const auto values = evaluate_graph(graph, batch, given);
  StepValues step;
  for (const graph::Output& output : graph.outputs) {
    const Tensor& value = values.at(BufferId(output.value.value));
    if (output.kind == graph::OutputKind::kLoss) step.loss = value.at[0];
    if (output.kind == graph::OutputKind::kGradient)
      step.gradients[graph.value(output.of).name] = value;
  }
  return step;
}

inline void expect_near(const Tensor& found, const Tensor& wanted, const std::string& what) {
  ASSERT_EQ(found.shape, wanted.shape) << what;
  for (std::size_t i = 0; i < wanted.at.size(); ++i)
    ASSERT_NEAR(found.at[i], wanted.at[i], 1e-9 * std::max(1.0, std::abs(wanted.at[i])))
        << what << " at " << i;
}

}  // namespace motley::testing
