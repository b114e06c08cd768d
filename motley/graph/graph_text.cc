#include "motley/graph/graph_text.h"

#include <fmt/format.h>

#include <iterator>

#include "motley/base/text.h"

namespace motley::graph {
namespace {

using Out = std::back_insert_iterator<std::string>;

std::string print_shape(const Value& value) {
  std::string text(dtype_name(value.dtype));
  if (value.dtype == DType::kNone) return text;
  text += '[';
  for (std::size_t i = 0; i < value.shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += value.shape[i].text();
  }
  return text + ']';
}

std::string_view role_word(ValueRole role) {
  switch (role) {
    case ValueRole::kInput:
      return "input";
    case ValueRole::kParameter:
      return "param";
    case ValueRole::kBuffer:
      return "buffer";
    case ValueRole::kConstant:
      return "constant";
    case ValueRole::kTangent:
      return "tangent";
    case ValueRole::kActivation:
      break;
  }
  return "op";
}

void print_leaf(std::string& text, const Value& value, std::size_t id) {
  fmt::format_to(Out(text), "{} %{}: {}", role_word(value.role), id, print_shape(value));
  if (value.role != ValueRole::kTangent) text += " " + quote(value.name);
  if (value.frozen) text += " frozen";
  for (const std::string& name : value.tied) text += " tied " + quote(name);
  text += '\n';
}

void append_argument(std::string& text, const SymbolicArgument& argument);

void append_arguments(std::string& text, const SymbolicArguments& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (i > 0) text += ", ";
    append_argument(text, arguments[i]);
  }
}

/// Appends each kind of argument in its text form.
struct ArgumentPrinter {
  std::string& text;

  void operator()(const NoneArgument&) const { text += "none"; }
  void operator()(ValueId id) const { fmt::format_to(Out(text), "%{}", id.value); }
  void operator()(bool value) const { text += value ? "true" : "false"; }
  void operator()(std::int64_t value) const { fmt::format_to(Out(text), "{}", value); }
  void operator()(double value) const { text += print_float(value); }
  void operator()(const std::string& value) const { text += quote(value); }
  void operator()(const SizeArgument& size) const { text += "size(" + size.expr.text() + ")"; }
  void operator()(const SymbolicNumber& number) const {
    text += "number(" + number.expr.text() + ")";
  }
  void operator()(const KeywordArgument& keyword) const {
    text += keyword.kind + "(" + keyword.word + ")";
  }
  void operator()(const ComplexArgument& number) const {
    text += "complex(" + print_float(number.real) + ", " + print_float(number.imaginary) + ")";
  }
  void operator()(const SymbolicArguments& list) const {
    text += '[';
    append_arguments(text, list);
    text += ']';
  }
};

void append_argument(std::string& text, const SymbolicArgument& argument) {
  std::visit(ArgumentPrinter{text}, argument.value);
}

void print_op(std::string& text, const Graph& graph, const Op& op) {
  text += "op ";
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    const ValueId id = op.outputs[i];
    fmt::format_to(Out(text), "{}%{}: {}", i > 0 ? ", " : "", id.value,
                   print_shape(graph.value(id)));
  }
  text += " = " + op.full_name() + "(";
  append_arguments(text, op.arguments);
  fmt::format_to(Out(text), ") {} {}", op.direction == Direction::kForward ? "fwd" : "bwd",
                 quote(op.module));
  if (op.sequence) fmt::format_to(Out(text), " seq {}", *op.sequence);
  if (op.returns_list) text += " list";
  text += '\n';
}

void print_output(std::string& text, const Graph& graph, const Output& output) {
  switch (output.kind) {
    case OutputKind::kLoss:
      fmt::format_to(Out(text), "output loss %{}\n", output.value.value);
      return;
    case OutputKind::kExtra:
    case OutputKind::kMetric:
      fmt::format_to(Out(text), "output {} %{}{}{}\n",
                     output.kind == OutputKind::kExtra ? "extra" : "metric", output.value.value,
                     output.name.empty() ? "" : " ", output.name.empty() ? "" : quote(output.name));
      return;
    case OutputKind::kGradient:
    case OutputKind::kUpdate:
      fmt::format_to(Out(text), "output {} %{} of {}\n",
                     output.kind == OutputKind::kGradient ? "gradient" : "update",
                     output.value.value, quote(graph.value(output.of).name));
      return;
  }
}

}  // namespace

std::string print_argument(const SymbolicArgument& argument) {
  std::string text;
  append_argument(text, argument);
  return text;
}

std::string print_graph(const Graph& graph) {
  std::string text = "motley.graph/1\nname " + quote(graph.name) + "\n";
  for (const NamedSize& size : graph.sizes) {
    fmt::format_to(Out(text), "size {} {} {}\n", size.name, size.min, size.max);
  }
  for (std::size_t i = 0; i < graph.values.size(); ++i) {
    if (graph.values[i].role != ValueRole::kActivation) print_leaf(text, graph.values[i], i);
  }
  for (const Op& op : graph.ops) print_op(text, graph, op);
  for (const Output& output : graph.outputs) print_output(text, graph, output);
  return text;
}

}  // namespace motley::graph
