#include "motley/synth/ranks/pass_graph.h"

#include <algorithm>
#include <regex>

#include "motley/base/check.h"

namespace motley::synth {

graph::SizeExpr with_batch(const graph::SizeExpr& expr, const std::string& instead) {
  if (!expr.depends_on(kBatch)) return expr;
  static const std::regex kName("\\bbatch\\b");
  auto parsed = graph::parse_size_expr(std::regex_replace(expr.text(), kName, instead));
  MOTLEY_CHECK(parsed.has_value());
  return std::move(*parsed);
}

PassGraph::PassGraph(const PassedStep& step) : step_(step) {
  made_.micro_batches = step.times();
  made_.graph.name = step.graph.name;
  made_.graph.sizes = step.graph.sizes;
  // Sums of gradients come on top.
  const auto times = static_cast<std::size_t>(step.times());
  made_.graph.ops.reserve(times * step.graph.ops.size() * 5 / 4);
  made_.graph.values.reserve(times * step.graph.values.size() * 5 / 4);
  made_.copies.reserve(times * step.graph.ops.size() * 5 / 4);
}

void PassGraph::add_op(graph::Op op, Copy copy) {
  graph::add_op(made_.graph, std::move(op));
  made_.copies.push_back(copy);
}

ValueId PassGraph::add(std::string_view name, graph::SymbolicArguments arguments, DType dtype,
                       std::vector<graph::SizeExpr> shape, const AddedFor& what) {
  const std::size_t dot = name.find('.');
  graph::Op op;
  op.name = name.substr(0, dot);
  if (dot != std::string_view::npos) op.overload = name.substr(dot + 1);
  op.arguments = std::move(arguments);
  Copy copy = copy_in(what.pass);
  if (what.beside != nullptr) {
    op.module = what.beside->module;
    op.direction = what.beside->direction;
    op.sequence = what.beside->sequence;
    copy.beside = OpId(what.beside - step_.graph.ops.data());
  }
  graph::Value value;
  value.dtype = dtype;
  value.shape = std::move(shape);
  const ValueId result = add_value(std::move(value));
  op.outputs = {result};
  add_op(std::move(op), copy);
  return result;
}

ValueId PassGraph::add_like(ValueId like, std::string_view name, graph::SymbolicArguments arguments,
                            const AddedFor& what) {
  const graph::Value about = value(like);
  return add(name, std::move(arguments), about.dtype, about.shape, what);
}

ValueId PassGraph::add_zeros(ValueId like, const AddedFor& what) {
  const graph::SymbolicArgument none{NoneArgument{}};
  return add_like(like, "aten::zeros_like", {{like}, none, none, none, none, none}, what);
}

void PassGraph::add_term(ValueId term, const AddedFor& what, std::vector<ValueId>& sums) {
  if (step_.is_first(what.pass))
    sums.push_back(term);
  else
    sums.back() =
        add_like(sums.back(), "aten::add.Tensor", {{sums.back()}, {term}, {std::int64_t{1}}}, what);
}

ValueId PassGraph::sum_replicas(const std::vector<ValueId>& sums, const graph::Op& beside) {
  if (sums.size() == 1) return sums.front();
  graph::SymbolicArguments terms;
  for (const ValueId each : sums) terms.push_back({each});
  return add_like(sums.front(), kSumReplicas, {{terms}}, {&beside});
}

Copy PassGraph::copy_in(std::int64_t pass) const {
  Copy copy;
  copy.micro_batch = step_.has_terms ? pass : std::max<std::int64_t>(pass, 0);
  if (pass >= 0) copy.stretch = step_.stretch(pass);
  return copy;
}

graph::SizeExpr PassGraph::in_pass(const graph::SizeExpr& expr, std::int64_t pass) const {
  if (!step_.has_terms || !expr.depends_on(kBatch)) return expr;
  return graph::SizeExpr(expr.evaluate_integer({{std::string(kBatch), step_.stretch(pass).count}}));
}

}  // namespace motley::synth
