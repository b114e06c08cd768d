#include "motley/synth/forms.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <unordered_map>

#include "motley/synth/rules.h"

namespace motley::synth {
namespace {

constexpr std::string_view kBatch = "batch";

/// Factor f of a size f*batch; 0 if the size is not of that kind.
std::int64_t find_factor(const graph::SizeExpr& size) {
  std::int64_t factor = 0;
  for (const std::int64_t batch : {2, 3, 7}) {
    const std::int64_t value = size.evaluate_integer({{std::string(kBatch), batch}});
    if (value % batch != 0 || value <= 0) return 0;
    if (factor != 0 && factor != value / batch) return 0;
    factor = value / batch;
  }
  return factor;
}

std::vector<BatchAxis> find_batch_axes(const graph::Graph& graph) {
  std::vector<BatchAxis> axes(graph.values.size());
  std::unordered_map<std::string, std::int64_t> factors;
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const std::vector<graph::SizeExpr>& shape = graph.values[v].shape;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (shape[d].is_constant() || !shape[d].depends_on(kBatch)) continue;
      const auto [entry, is_new] = factors.try_emplace(shape[d].text(), 0);
      if (is_new) entry->second = find_factor(shape[d]);
      if (axes[v].dim >= 0 || entry->second == 0) axes[v].irregular = true;
      axes[v].dim = static_cast<int>(d);
      axes[v].factor = entry->second;
    }
  }
  return axes;
}

/// The usual form of a shape: sample-major.
Form form_of_shape(const BatchAxis& axis) {
  if (axis.dim < 0) return kReplicatedForm;
  return Form{FormKind::kSharded, axis.dim, 1, axis.factor};
}

tl::unexpected<Error> unsupported(const graph::Graph& graph, const graph::Op& op,
                                  const std::string& reason) {
  return usage_error(
      "synth.unsupported",
      fmt::format("{}: cannot split operator {} = {} in module '{}' over devices: {}; write it so "
                  "that samples stay apart, or train on one device",
                  graph.name, op.outputs.empty() ? "" : fmt::format("%{}", op.outputs[0].value),
                  op.full_name(), op.module, reason));
}

}  // namespace

Result<FormTable> assign_forms(const graph::Graph& graph, plan::BatchNormMode batch_norm,
                               Strictness strictness) {
  FormTable table;
  table.axes = find_batch_axes(graph);
  table.values.resize(graph.values.size());
  table.ops.resize(graph.ops.size());
  for (std::size_t v = 0; v < graph.values.size(); ++v)
    if (graph.values[v].producer.is_none()) table.values[v] = form_of_shape(table.axes[v]);
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const graph::Op& op = graph.ops[i];
    RuleCall call(graph, table, batch_norm, OpId(static_cast<std::int64_t>(i)));
    if (apply_rule(call)) {
      for (std::size_t o = 0; o < op.outputs.size(); ++o)
        table.values[op.outputs[o].index()] = call.results()[o];
      table.ops[i] = std::move(call.treatment());
      continue;
    }
    if (strictness == Strictness::kExact) return unsupported(graph, op, call.reason());
    for (const ValueId output : op.outputs)
      table.values[output.index()] = form_of_shape(table.axes[output.index()]);
  }
  return table;
}

std::string print_form(const Form& form) {
  switch (form.kind) {
    case FormKind::kReplicated:
      return "R";
    case FormKind::kPartial:
      return "P";
    case FormKind::kPosition:
      return "position";
    case FormKind::kOwn:
      return "own";
    case FormKind::kSharded:
      break;
  }
  if (form.outer == 1 && form.inner == 1) return fmt::format("S({})", form.dim);
  const std::string outer = form.outer == 1 ? "" : fmt::format("{}*", form.outer);
  const std::string inner = form.inner == 1 ? "" : fmt::format("*{}", form.inner);
  return fmt::format("S({}, {}batch{})", form.dim, outer, inner);
}

}  // namespace motley::synth
