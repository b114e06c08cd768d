#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "motley/base/arguments.h"
#include "motley/base/dtype.h"
#include "motley/base/ids.h"
#include "motley/base/result.h"
#include "motley/graph/size_expr.h"

namespace motley::graph {

enum class ValueRole { kInput, kParameter, kBuffer, kConstant, kTangent, kActivation };

/// A tensor of the step. Its shape may depend on named sizes.
struct Value {
  ValueRole role = ValueRole::kActivation;
  DType dtype = DType::kF32;
  std::vector<SizeExpr> shape;
  std::string name;  ///< state_dict or argument name; "" for activations and the tangent
  std::vector<std::string> tied;  ///< further names of a parameter
  bool frozen = false;            ///< parameter that takes no gradient
  OpId producer;                  ///< none unless an activation

  bool operator==(const Value&) const = default;
};

/// One argument of an operator, by schema position.
struct SymbolicArgument;
using SymbolicArguments = std::vector<SymbolicArgument>;
/// size(EXPR): describes a shape or index; number(EXPR): enters the arithmetic.
struct SizeArgument {
  SizeExpr expr;
  bool operator==(const SizeArgument&) const = default;
};
struct SymbolicNumber {
  SizeExpr expr;
  bool operator==(const SymbolicNumber&) const = default;
};
struct SymbolicArgument {
  std::variant<NoneArgument, ValueId, bool, std::int64_t, double, std::string, SizeArgument,
               SymbolicNumber, KeywordArgument, ComplexArgument, SymbolicArguments>
      value;
  bool operator==(const SymbolicArgument&) const;  // NaN equals NaN
};

enum class Direction { kForward, kBackward };

/// An operator with all arguments of its ATen schema, in order.
struct Op {
  std::string name;      ///< "aten::mm"
  std::string overload;  ///< "" for default
  SymbolicArguments arguments;
  std::vector<ValueId> outputs;
  bool returns_list = false;  ///< the schema returns one Tensor[]; outputs are its elements
  Direction direction = Direction::kForward;
  std::string module;  ///< "h.3.attn"
  std::optional<std::int64_t> sequence;

  bool operator==(const Op&) const = default;
  std::string full_name() const;
};

enum class OutputKind {
  kLoss,
  kExtra,     ///< of a training step: another result of forward, which training ignores
  kMetric,    ///< of a graph that evaluates: one number
  kGradient,  ///< of a training step
  kUpdate,    ///< of a training step: the new value of a buffer
};
struct Output {
  OutputKind kind = OutputKind::kExtra;
  ValueId value;
  ValueId of;        ///< parameter of a gradient, buffer of an update; else none
  std::string name;  ///< forward's name for an extra output or a metric; "" without one

  bool operator==(const Output&) const = default;
};

struct NamedSize {
  std::string name;
  std::int64_t min = 1, max = 1;
  bool operator==(const NamedSize&) const = default;
};

/// One training step, forward and backward. Plain data; ids are positions in the vectors.
struct Graph {
  std::string name;
  std::vector<NamedSize> sizes;
  std::vector<Value> values;
  std::vector<Op> ops;
  std::vector<Output> outputs;

  const Value& value(ValueId id) const { return values[id.index()]; }
  const Op& op(OpId id) const { return ops[id.index()]; }
  bool operator==(const Graph&) const = default;
};

/// Calls `visit(ValueId)` for every value among the arguments, lists included, in order.
template <typename Visit>
void for_each_value(const SymbolicArguments& arguments, const Visit& visit) {
  for (const SymbolicArgument& argument : arguments) {
    if (const auto* id = std::get_if<ValueId>(&argument.value)) visit(*id);
    if (const auto* list = std::get_if<SymbolicArguments>(&argument.value))
      for_each_value(*list, visit);
  }
}

std::vector<ValueId> values_with_role(const Graph& graph, ValueRole role);

/// Elements and bytes of a value at `sizes`; 0 for dtype none.
std::int64_t value_elements(const Value& value, const Sizes& sizes);
std::int64_t value_bytes(const Value& value, const Sizes& sizes);

}  // namespace motley::graph
