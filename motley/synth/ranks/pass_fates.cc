#include "motley/synth/ranks/pass_fates.h"

#include <fmt/format.h>

#include <algorithm>

#include "motley/graph/draws.h"
#include "motley/graph/reach.h"
#include "motley/synth/operators/batch_norm.h"

namespace motley::synth {
namespace {

using graph::Form;
using graph::Graph;
using graph::Op;
using graph::Output;
using graph::OutputKind;

bool takes_rows_by_number(const Op& op) {
  return op.name == "aten::index" || op.name == "aten::_unsafe_index" ||
         op.name == "aten::index_put" || op.name == "aten::_unsafe_index_put";
}

bool is_sum(const Output& output) {
  return output.kind == OutputKind::kLoss || output.kind == OutputKind::kGradient;
}

std::size_t count_batch_dims(const graph::Value& value) {
  return static_cast<std::size_t>(
      std::count_if(value.shape.begin(), value.shape.end(),
                    [](const graph::SizeExpr& size) { return size.depends_on(kBatch); }));
}

/// Gradients that are sums of gradients (of a weight that is used twice): where outputs stay terms
/// these are not added up.
class SumLeaves {
 public:
  explicit SumLeaves(const PassValues& values)
      : values_(values),
        graph_(values.step.graph),
        readers_(graph_.values.size(), 0),
        is_adder_(graph_.ops.size(), 0) {
    for (const Output& output : graph_.outputs) leaves_.push_back({output.value});
    if (!values.step.has_terms) return;
    for (const Op& op : graph_.ops)
      graph::for_each_value(op.arguments, [&](ValueId value) { ++readers_[value.index()]; });
    for (const Output& output : graph_.outputs) ++readers_[output.value.index()];
    for (std::size_t o = 0; o < leaves_.size(); ++o)
      for (std::size_t l = 0;
           graph_.outputs[o].kind == OutputKind::kGradient && l < leaves_[o].size();)
        if (!take_apart(leaves_[o], l)) ++l;
  }

  const std::vector<std::vector<ValueId>>& leaves() const { return leaves_; }
  /// Does it add such up?
  bool is_adder(std::size_t op) const { return is_adder_[op] != 0; }

 private:
  bool take_apart(std::vector<ValueId>& leaves, std::size_t leaf) {
    const graph::Value& value = graph_.value(leaves[leaf]);
    const OpId producer = value.producer;
    if (producer.is_none() || !is_term(leaves[leaf])) return false;
    const Op& op = graph_.op(producer);
    if (op.full_name() != "aten::add.Tensor" || op.arguments.size() != 3 ||
        op.arguments[2] != graph::SymbolicArgument{std::int64_t{1}})
      return false;
    const auto* a = std::get_if<ValueId>(&op.arguments[0].value);
    const auto* b = std::get_if<ValueId>(&op.arguments[1].value);
    if (a == nullptr || b == nullptr || *a == *b) return false;
    for (const ValueId each : {*a, *b})
      if (!is_term(each) || graph_.value(each).dtype != value.dtype ||
          graph_.value(each).shape != value.shape)
        return false;
    is_adder_[producer.index()] = 1;
    leaves[leaf] = *a;
    leaves.push_back(*b);
    return true;
  }

  bool is_term(ValueId value) const {
    return readers_[value.index()] == 1 && values_.home(value) == graph::kPartialForm;
  }

  const PassValues& values_;
  const Graph& graph_;
  std::vector<int> readers_;  // by value
  std::vector<char> is_adder_;
  std::vector<std::vector<ValueId>> leaves_;
};

/// Can a value be had in another form than its home? Sums of what inputs alone make, which are made
/// first; and whole values as terms, of which the first pass has all. (In a loop each pass has its
/// own sums, and all of what is whole.)
bool can_have(const PassValues& values, ValueId value, const Form& form) {
  if (form == graph::kWholeForm)
    return values.home(value) == graph::kPartialForm && values.is_of_inputs[value.index()] != 0;
  return form == graph::kPartialForm && values.home(value) == graph::kWholeForm;
}

/// Of an operator that its split makes another one; empty: it needs all samples at once.
std::optional<Fate> fate_of_rewritten(const PassValues& values, const Op& op) {
  if (values.step.is_loop && trains_batch_norm(op)) return Fate::kEach;
  std::optional<Fate> fate;
  if (is_mean_loss(op)) {
    if (values.step.is_loop) return Fate::kMean;
    if (values.is_of_inputs[std::get<ValueId>(op.arguments[1].value).index()] != 0)
      fate = Fate::kNllMean;
  } else if (op.name == "aten::arange") {
    if (first_number(op)) fate = Fate::kNumbers;
  } else if (takes_rows_by_number(op)) {
    fate = Fate::kOwnRows;
  } else if (graph::is_draw(op) && count_batch_dims(values.step.graph.value(op.outputs[0])) == 1) {
    // A second one, [batch, batch], would be that of a pass.
    fate = Fate::kEach;
  }
  return fate;
}

/// Empty: it needs all samples at once.
std::optional<Fate> fate_of(const PassValues& values, std::size_t i) {
  if (values.step.times() == 1) return Fate::kEach;
  const Graph& graph = values.step.graph;
  const Op& op = graph.ops[i];
  const graph::ShardingRule& rule = values.rules[i];
  bool has_samples = std::any_of(op.outputs.begin(), op.outputs.end(), [&](ValueId output) {
    return values.home(output) != graph::kWholeForm;
  });
  for (std::size_t o = 0; o < rule.operands.size(); ++o) {
    const Form form = values.wanted(i, o);
    has_samples = has_samples || form != graph::kWholeForm;
    if (values.home(rule.operands[o]) != form && !can_have(values, rule.operands[o], form))
      return std::nullopt;
  }
  if (!has_samples) {
    // A shape of the whole batch would be one of a pass here.
    for (const ValueId output : op.outputs)
      if (count_batch_dims(graph.value(output)) > 0) return std::nullopt;
    return values.takes_own(i) ? Fate::kEach : Fate::kOnce;
  }
  const int factor = values.time.ops[i].factor;
  if (factor < 0) return Fate::kEach;
  switch (rule.factors[static_cast<std::size_t>(factor)].split) {
    case graph::Split::kPlain:
      return Fate::kEach;
    case graph::Split::kMean:
      return Fate::kMean;
    case graph::Split::kRewritten:
      return fate_of_rewritten(values, op);
    case graph::Split::kNever:
      break;
  }
  return std::nullopt;
}

/// What is summed before all else.
void prepare(const Graph& graph, ValueId value, PassFates& found) {
  const OpId producer = graph.value(value).producer;
  if (producer.is_none() || found.is_prepared[producer.index()] != 0) return;
  found.is_prepared[producer.index()] = 1;
  graph::for_each_value(graph.op(producer).arguments,
                        [&](ValueId each) { prepare(graph, each, found); });
}

tl::unexpected<Error> refuse_operators(const PassedStep& step,
                                       const std::vector<std::size_t>& ops) {
  const Op& first = step.graph.ops[ops[0]];
  const std::string more = ops.size() == 1 ? "" : fmt::format(", and {} more", ops.size() - 1);
  return step.refuse(fmt::format("operator {} in module '{}' {} all samples at once{}",
                                 first.full_name(), first.module,
                                 graph::draws_across(first) ? "permutes" : "needs", more));
}

Result<void> find_fates(const PassValues& values, const SumLeaves& sums, PassFates& found) {
  const Graph& graph = values.step.graph;
  const graph::Reach live = graph::find_live(graph);
  std::vector<std::size_t> refused;
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const bool is_there = live.holds(i) && !sums.is_adder(i);
    const std::optional<Fate> fate = is_there ? fate_of(values, i) : Fate::kDropped;
    if (!fate) refused.push_back(i);
    found.fates.push_back(fate.value_or(Fate::kDropped));
    if (found.fates[i] == Fate::kDropped) continue;
    if (*fate == Fate::kNllMean)
      prepare(graph, std::get<ValueId>(graph.ops[i].arguments[1].value), found);
    for (std::size_t o = 0; o < values.rules[i].operands.size(); ++o) {
      if (values.step.is_loop || !values.takes_sum(i, o)) continue;
      const ValueId operand = values.rules[i].operands[o];
      found.is_early_sum[operand.index()] = 1;
      prepare(graph, operand, found);
    }
  }
  if (!refused.empty()) return refuse_operators(values.step, refused);
  return {};
}

Result<void> check_outputs(const PassValues& values) {
  for (const Output& output : values.step.graph.outputs) {
    if (output.kind == OutputKind::kExtra || !values.has_copies(output.value) ||
        values.is_own[output.value.index()] != 0)
      continue;
    if (output.kind == OutputKind::kUpdate || values.home(output.value) != graph::kPartialForm)
      return values.step.refuse(
          fmt::format("output {} is not a sum over samples", output.value.value));
  }
  return {};
}

void find_summed(const PassValues& values, PassFates& found) {
  found.is_summed = found.is_early_sum;
  for (std::size_t o = 0; o < found.leaves.size(); ++o)
    if (is_sum(values.step.graph.outputs[o]))
      for (const ValueId leaf : found.leaves[o]) found.is_summed[leaf.index()] = 1;
  for (std::size_t v = 0; v < found.is_summed.size(); ++v) {
    const bool has_all = !values.step.is_loop && values.is_own[v] != 0;  // in each pass
    if (has_all || !values.has_copies(ValueId(v))) found.is_summed[v] = 0;
  }
}

/// Does the operator divide by how many samples there are?
bool is_mean(const PassValues& values, std::size_t i, Fate fate) {
  bool divides = fate == Fate::kMean;
  for (const graph::SymbolicArgument& argument : values.step.graph.ops[i].arguments)
    if (const auto* number = std::get_if<graph::SymbolicNumber>(&argument.value))
      divides = divides || number->expr.depends_on(kBatch);
  for (std::size_t o = 0; o < values.rules[i].operands.size(); ++o)
    divides = divides || values.takes_sum(i, o);
  return divides;
}

/// How much the loss of each pass counts in a loop.
double find_part(const PassValues& values, const std::vector<Fate>& fates) {
  if (!values.step.is_loop) return 1;
  graph::Reach of_loss(values.step.graph);
  for (const Output& output : values.step.graph.outputs)
    if (output.kind == OutputKind::kLoss) of_loss.add(output.value);
  of_loss.close();
  for (std::size_t i = 0; i < fates.size(); ++i)
    if (of_loss.holds(i) && is_mean(values, i, fates[i]))
      return 1 / static_cast<double>(values.step.times());
  return 1;
}

}  // namespace

std::optional<std::int64_t> first_number(const Op& op) {
  if (op.overload.empty()) return 0;
  const auto* start = std::get_if<std::int64_t>(&op.arguments[0].value);
  return start == nullptr ? std::nullopt : std::optional(*start);
}

Result<PassFates> find_pass_fates(const PassValues& values) {
  const SumLeaves sums(values);
  PassFates found;
  found.leaves = sums.leaves();
  found.is_prepared.assign(values.step.graph.ops.size(), 0);
  found.is_early_sum.assign(values.step.graph.values.size(), 0);
  MOTLEY_RETURN_IF_ERROR(find_fates(values, sums, found));
  MOTLEY_RETURN_IF_ERROR(check_outputs(values));
  find_summed(values, found);
  found.part = find_part(values, found.fates);
  return found;
}

}  // namespace motley::synth
