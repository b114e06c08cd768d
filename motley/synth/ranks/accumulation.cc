#include "motley/synth/ranks/accumulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "motley/base/check.h"
#include "motley/synth/operators/batch_norm.h"
#include "motley/synth/ranks/pass_fates.h"
#include "motley/synth/ranks/pass_graph.h"
#include "motley/synth/ranks/pass_values.h"

namespace motley::synth {
namespace {

using graph::Form;
using graph::Graph;
using graph::Op;
using graph::Output;
using graph::OutputKind;
using graph::SizeArgument;
using graph::SizeExpr;
using graph::SymbolicArgument;
using graph::SymbolicArguments;
using graph::Value;

SymbolicArgument place_argument(const std::string& text) {
  auto parsed = graph::parse_size_expr(text);
  MOTLEY_CHECK(parsed.has_value());
  return {SizeArgument{std::move(*parsed)}};
}

/// Writes the copies of a step's operators, and sums of what they add up to.
class PassWriter {
 public:
  PassWriter(const PassValues& values, const PassFates& fates)
      : step_(values.step),
        graph_(values.step.graph),
        values_(values),
        fates_(fates),
        made_(values.step),
        copies_(graph_.values.size()),
        sums_(graph_.values.size()) {}

  Accumulation write() {
    add_sources();
    write_early();
    const std::size_t early = made_.size();
    for (std::int64_t m = 0; m < step_.times(); ++m) {
      if (m > 0) take_updated_buffers(m - 1);
      for (std::size_t i = 0; i < graph_.ops.size(); ++i)
        if (fates_.is_prepared[i] == 0 && fates_.is_there(i, m)) write_copy(i, m);
    }
    const std::size_t late = made_.size();
    std::vector<Accumulation::Term> terms = find_terms();
    Accumulation made = made_.take();
    made.part = fates_.part;
    made.early = early;
    made.late = late;
    if (step_.has_terms) {
      made.terms = std::move(terms);
      return made;
    }
    for (const Accumulation::Term& term : terms) {  // of one replica, each all of its output
      Output& output = made.graph.outputs.emplace_back(graph_.outputs[term.output]);
      output.value = term.value;
      if (!output.of.is_none()) output.of = copies_of(output.of)[0];
    }
    return made;
  }

 private:
  std::vector<ValueId>& copies_of(ValueId value) { return copies_[value.index()]; }

  /// The copy of a pass; of what has none, the value itself.
  ValueId mapped(ValueId value, std::int64_t m) {
    const std::vector<ValueId>& copies = copies_of(value);
    MOTLEY_CHECK(!copies.empty());
    return copies[values_.has_copies(value) ? static_cast<std::size_t>(m) : 0];
  }

  ValueId taken(ValueId value, const Form& form, std::int64_t m) {
    if (step_.is_loop || form == values_.home(value)) return mapped(value, m);
    if (form == graph::kWholeForm) return sums_[value.index()].front();
    const ValueId whole = mapped(value, m);
    if (m == 0) return whole;
    const Op* maker = producer_of(value);
    if (values_.is_own[value.index()] != 0) return made_.add_zeros(whole, {maker, m});
    const auto [zeros, is_new] = zeros_.try_emplace(value);
    if (is_new) zeros->second = made_.add_zeros(whole, {maker});
    return zeros->second;
  }

  const Op* producer_of(ValueId value) const {
    const OpId producer = graph_.value(value).producer;
    return producer.is_none() ? nullptr : &graph_.op(producer);
  }

  /// Sources keep their order, first of all values; inputs are cut into passes.
  void add_sources() {
    for (std::size_t v = 0; v < copies_.size(); ++v) {
      if (!graph_.values[v].producer.is_none()) continue;
      Value source = graph_.values[v];
      const bool is_cut = is_input(v);
      if (is_cut && step_.has_terms) {
        for (const plan::Stretch& replica : step_.passes.replicas) {
          source.shape[0] = SizeExpr(replica.count);
          copies_[v].push_back(made_.add_value(source));
        }
        continue;
      }
      if (is_cut) source.shape[0] = of_all(source.shape[0], step_.times());
      if (step_.times() == 1)
        for (SizeExpr& size : source.shape) size = made_.in_pass(size, 0);
      copies_[v] = {made_.add_value(std::move(source))};
    }
    for (std::size_t v = 0; v < copies_.size(); ++v)
      if (is_input(v)) step_.has_terms ? slice_input(v) : cut_input(v);
    for (std::size_t v = 0; v < copies_.size(); ++v)
      if (graph_.values[v].role == graph::ValueRole::kTangent && fates_.part != 1)
        copies_[v] = {made_.scale(copies_[v][0], fates_.part)};
  }

  bool is_input(std::size_t v) const {
    return graph_.values[v].producer.is_none() && values_.held.homes[v] != graph::kWholeForm;
  }

  static SizeExpr of_all(const SizeExpr& expr, std::int64_t times) {
    return with_batch(expr, fmt::format("({}*{})", kBatch, times));
  }

  void slice_input(std::size_t v) {
    const Value& input = graph_.values[v];
    const std::vector<ValueId> wholes = std::exchange(copies_[v], {});
    for (std::int64_t m = 0; m < step_.times(); ++m) {
      const plan::Stretch& stretch = step_.stretch(m);
      const std::size_t replica = step_.replica_of(m);
      const std::int64_t first = stretch.first - step_.passes.replicas[replica].first;
      std::vector<SizeExpr> shape = input.shape;
      shape[0] = SizeExpr(stretch.count);
      copies_[v].push_back(made_.add("aten::slice.Tensor",
                                     {{wholes[replica]},
                                      {std::int64_t{0}},
                                      {first},
                                      {first + stretch.count},
                                      {std::int64_t{1}}},
                                     input.dtype, std::move(shape), {nullptr, m}));
    }
  }

  void cut_input(std::size_t v) {
    const Value& input = graph_.values[v];
    std::vector<SizeExpr> shape = input.shape;
    shape.insert(shape.begin(), SizeExpr(step_.times()));
    SymbolicArguments sizes;
    for (const SizeExpr& size : shape) sizes.push_back({SizeArgument{size}});
    const ValueId seen = made_.add("aten::view", {{copies_[v][0]}, {sizes}}, input.dtype, shape);
    copies_[v].clear();
    for (std::int64_t m = 0; m < step_.times(); ++m)
      copies_[v].push_back(made_.add("aten::select.int", {{seen}, {std::int64_t{0}}, {m}},
                                     input.dtype, input.shape));
  }

  /// Passes after `m` have the buffers that it leaves.
  void take_updated_buffers(std::int64_t m) {
    std::vector<std::pair<ValueId, ValueId>> updated;
    for (const Output& output : graph_.outputs)
      if (output.kind == OutputKind::kUpdate && values_.is_own[output.of.index()] != 0)
        updated.emplace_back(output.of, mapped(output.value, m));
    for (const auto& [buffer, value] : updated) copies_of(buffer).push_back(value);
  }

  /// What is summed over all passes before they begin, and how many labels count.
  void write_early() {
    for (std::size_t i = 0; i < graph_.ops.size(); ++i)
      for (std::int64_t m = 0; fates_.is_prepared[i] != 0 && m < step_.times(); ++m)
        if (fates_.is_there(i, m)) write_copy(i, m);
    for (std::size_t v = 0; v < sums_.size(); ++v)
      if (fates_.is_early_sum[v] != 0)
        sums_[v] = {made_.sum_replicas(sums_[v], *producer_of(ValueId(v)))};
    for (std::size_t i = 0; i < graph_.ops.size(); ++i)
      if (fates_.fates[i] == Fate::kNllMean)
        copies_of(graph_.ops[i].outputs[1]) = {count_labels(graph_.ops[i])};
  }

  ValueId count_labels(const Op& op) {
    const auto target = std::get<ValueId>(op.arguments[1].value);
    const DType dtype = graph_.value(op.outputs[1]).dtype;
    const auto* weights = std::get_if<ValueId>(&op.arguments[2].value);
    const auto key = std::tuple(target, weights == nullptr ? ValueId() : *weights,
                                std::get<std::int64_t>(op.arguments[4].value), dtype);
    const auto [known, is_new] = counts_.try_emplace(key);
    if (!is_new) return known->second;
    const KeywordArgument f32{"dtype", "f32"};
    std::vector<ValueId> sums;
    for (std::int64_t m = 0; m < step_.times(); ++m) {
      const ValueId worth = label_worth(mapped(target, m), op, m);
      made_.add_term(made_.add("aten::sum", {{worth}, {f32}}, DType::kF32, {}, {&op, m}), {&op, m},
                     sums);
    }
    known->second = made_.sum_replicas(sums, op);
    if (dtype == DType::kF32) return known->second;
    const SymbolicArgument none{NoneArgument{}};
    const KeywordArgument to{"dtype", std::string(dtype_name(dtype))};
    return known->second =
               made_.add("aten::_to_copy", {{known->second}, {to}, none, none, none, {false}, none},
                         dtype, {}, {&op});
  }

  /// By label: does it count, or its class's weight?
  ValueId label_worth(ValueId labels, const Op& op, std::int64_t m) {
    const std::vector<SizeExpr> shape = made_.value(labels).shape;
    const auto compared = [&](const char* how) {
      return made_.add(how, {{labels}, op.arguments[4]}, DType::kBool, shape, {&op, m});
    };
    const auto* of_classes = std::get_if<ValueId>(&op.arguments[2].value);
    if (of_classes == nullptr) return compared("aten::ne.Scalar");
    const auto filled = [&](ValueId x, ValueId where, SymbolicArgument with) {
      return made_.add_like(x, "aten::masked_fill.Scalar", {{x}, {where}, std::move(with)},
                            {&op, m});
    };
    const ValueId weights = mapped(*of_classes, 0);
    const ValueId outside = compared("aten::eq.Scalar");
    const ValueId known = filled(labels, outside, {std::int64_t{0}});
    const ValueId picked =
        made_.add("aten::index.Tensor", {{weights}, {SymbolicArguments{{known}}}},
                  made_.value(weights).dtype, shape, {&op, m});
    return filled(picked, outside, {0.0});
  }

  void write_copy(std::size_t i, std::int64_t m) {
    const Op& op = graph_.ops[i];
    Op made = op;
    const Fate fate = step_.is_loop ? Fate::kEach : fates_.fates[i];
    std::size_t operand = 0;
    for (SymbolicArgument& argument : made.arguments) argument = copied(argument, i, m, operand);
    if (fate == Fate::kNllMean) made.arguments[3] = {kSumReduction};
    if (fate == Fate::kOwnRows) take_own_rows(made, i, m);
    for (ValueId& output : made.outputs) {
      Value value = graph_.value(output);
      for (SizeExpr& size : value.shape) size = made_.in_pass(size, m);
      output = made_.add_value(std::move(value));
    }
    if (fate == Fate::kNumbers) count_from(made, rows_before(op.outputs[0], 0, m));
    const std::vector<ValueId> results = made.outputs;
    Copy copy = made_.copy_in(step_.has_terms && fates_.fates[i] == Fate::kOnce ? -1 : m);
    copy.of = OpId(i);
    if (!op.outputs.empty()) copy.samples = values_.time.ops[i].results[0];
    made_.add_op(std::move(made), copy);
    for (std::size_t r = 0; r < results.size(); ++r) {
      const bool is_count = fate == Fate::kNllMean && r == 1;  // known already
      if (!is_count) define(op, op.outputs[r], results[r], fate, m);
    }
  }

  SymbolicArgument copied(const SymbolicArgument& argument, std::size_t op, std::int64_t m,
                          std::size_t& operand) {
    if (const auto* id = std::get_if<ValueId>(&argument.value))
      return {taken(*id, values_.wanted(op, operand++), m)};
    if (const auto* number = std::get_if<graph::SymbolicNumber>(&argument.value))
      return {graph::SymbolicNumber{number_in(number->expr, m)}};
    if (const auto* size = std::get_if<SizeArgument>(&argument.value))
      return {SizeArgument{made_.in_pass(size->expr, m)}};
    if (const auto* list = std::get_if<SymbolicArguments>(&argument.value)) {
      SymbolicArguments made;
      for (const SymbolicArgument& each : *list) made.push_back(copied(each, op, m, operand));
      return {made};
    }
    return argument;
  }

  /// A number of the whole batch or, in a loop, of the pass.
  SizeExpr number_in(const SizeExpr& expr, std::int64_t m) const {
    if (!step_.has_terms) return of_all(expr, step_.is_loop ? 1 : step_.times());
    const std::int64_t batch = step_.is_loop ? step_.stretch(m).count : step_.batch();
    return with_batch(expr, fmt::format("({})", batch));
  }

  /// Indices of a dimension that the passes before have.
  SizeExpr rows_before(ValueId value, int dim, std::int64_t m) const {
    const SizeExpr& rows = graph_.value(value).shape[static_cast<std::size_t>(dim)];
    if (!step_.has_terms) {
      auto parsed = graph::parse_size_expr(fmt::format("({})*{}", rows.text(), m));
      MOTLEY_CHECK(parsed.has_value());
      return std::move(*parsed);
    }
    const std::int64_t first = step_.stretch(m).first;
    return SizeExpr(first == 0 ? 0 : rows.evaluate_integer({{std::string(kBatch), first}}));
  }

  /// arange(end) or (start, end, ...) of as many numbers, behind those before.
  void count_from(Op& made, const SizeExpr& before) const {
    const std::int64_t first = first_number(made).value_or(0);
    const SizeExpr& rows = made_.value(made.outputs[0]).shape[0];
    if (made.overload.empty()) {
      made.arguments.insert(made.arguments.begin(), SymbolicArgument{});
      made.overload = "start";
    }
    made.arguments[0] = place_argument(fmt::format("{}+{}", before.text(), first));
    made.arguments[1] = place_argument(fmt::format("{}+{}+{}", before.text(), first, rows.text()));
  }

  /// (x, [numbers], ...): the numbers are of all rows, x has those of a pass.
  void take_own_rows(Op& made, std::size_t op, std::int64_t m) {
    if (m == 0) return;
    const int dim = values_.time.ops[op].operands[0].dim;
    auto& indices = std::get<SymbolicArguments>(made.arguments[1].value);
    SymbolicArgument& numbers = indices[static_cast<std::size_t>(dim)];
    const ValueId x = std::get<ValueId>(graph_.ops[op].arguments[0].value);
    const SizeArgument before{rows_before(x, dim, m)};
    numbers = {made_.add_like(std::get<ValueId>(numbers.value), "aten::sub.Scalar",
                              {numbers, {before}, {std::int64_t{1}}}, {&graph_.ops[op], m})};
  }

  void define(const Op& op, ValueId value, ValueId result, Fate fate, std::int64_t m) {
    if (fate == Fate::kMean) {
      const double share =
          static_cast<double>(step_.stretch(m).count) / static_cast<double>(step_.batch());
      result = made_.add_like(result, "aten::mul.Scalar", {{result}, {share}}, {&op, m});
    }
    if (fate == Fate::kNllMean) {
      const ValueId count = mapped(op.outputs[1], 0);
      result = made_.add_like(result, "aten::div.Tensor", {{result}, {count}}, {&op, m});
    }
    if (!values_.has_copies(value) && m > 0) return;  // the same as the first
    copies_of(value).push_back(result);
    if (is_summed(value)) made_.add_term(result, {&op, m}, sums_[value.index()]);
  }

  bool is_summed(ValueId value) const { return fates_.is_summed[value.index()] != 0; }
  static bool is_sum(const Output& output) {
    return output.kind == OutputKind::kLoss || output.kind == OutputKind::kGradient;
  }

  /// A replica's term of an output, of all passes; of a sum that passes of a loop have whole, as
  /// often as there are passes; of a loss its part.
  ValueId term_of(const Output& output, ValueId leaf, std::size_t replica) {
    if (!is_sum(output)) return mapped(leaf, step_.times() - 1);
    const bool has_sum = is_summed(leaf);
    const Op* beside = step_.has_terms ? producer_of(leaf) : nullptr;
    ValueId value = has_sum ? sums_[leaf.index()][replica] : mapped(leaf, 0);
    if (step_.is_loop && !has_sum)
      value = made_.scale(value, static_cast<double>(step_.times()), beside);
    return fates_.part != 1 && output.kind == OutputKind::kLoss
               ? made_.scale(value, fates_.part, beside)
               : value;
  }

  /// Each replica's terms of the outputs. Of a loss or gradient without samples, which all have
  /// alike, one term counts.
  std::vector<Accumulation::Term> find_terms() {
    std::vector<Accumulation::Term> terms;
    for (std::size_t o = 0; o < graph_.outputs.size(); ++o) {
      const Output& output = graph_.outputs[o];
      if (output.kind == OutputKind::kExtra) continue;
      for (std::size_t r = 0; r < step_.passes.replicas.size(); ++r)
        for (const ValueId leaf : fates_.leaves[o])
          if (r == 0 || !is_sum(output) || is_summed(leaf))
            terms.push_back({o, r, term_of(output, leaf, r)});
    }
    return terms;
  }

  const PassedStep& step_;
  const Graph& graph_;
  const PassValues& values_;
  const PassFates& fates_;
  PassGraph made_;
  std::vector<std::vector<ValueId>> copies_;  // by value: by pass
  std::vector<std::vector<ValueId>> sums_;    // by value: of each replica
  std::map<std::tuple<ValueId, ValueId, std::int64_t, DType>, ValueId> counts_;
  std::map<ValueId, ValueId> zeros_;
};

Result<void> check_sizes(const PassedStep& step) {
  const std::vector<graph::NamedSize>& sizes = step.graph.sizes;
  const auto size = std::find_if(sizes.begin(), sizes.end(),
                                 [](const graph::NamedSize& each) { return each.name == kBatch; });
  const std::vector<plan::Stretch>& stretches = step.passes.stretches;
  for (const plan::Stretch& each : stretches)
    if (size == sizes.end() || each.count < size->min)
      return step.refuse(fmt::format("the model's batches are not as small as {}", each.count));
  const bool are_equal =
      step.passes.replicas.size() == 1 && stretches.front().count == stretches.back().count;
  if (step.is_loop && step.times() > 1 && !are_equal)
    return step.refuse("batch norm's statistics are of each micro-batch, and these differ");
  return {};
}

Result<Accumulation> accumulate_passes(const PassedStep& step) {
  MOTLEY_RETURN_IF_ERROR(check_sizes(step));
  const PassValues values = find_pass_values(step);
  MOTLEY_ASSIGN(const PassFates fates, find_pass_fates(values));
  return PassWriter(values, fates).write();
}

}  // namespace

Result<Accumulation> accumulate(const Graph& graph, std::int64_t global_batch,
                                std::int64_t micro_batches, plan::BatchNormSpan batch_norm) {
  if (micro_batches < 1 || global_batch % micro_batches != 0)
    return usage_error(
        "synth.accumulation",
        fmt::format("{}: a step cannot be done in {} micro-batches: the global batch is {}",
                    graph.name, micro_batches, global_batch));
  const plan::Replica replica{global_batch, {}, micro_batches};
  Passes passes{plan::find_stretches(replica, 0), {}, {{0, global_batch}}};
  passes.replica_of.assign(passes.stretches.size(), 0);
  return accumulate_passes(
      {graph, std::move(passes), batch_norm == plan::BatchNormSpan::kMicroBatch});
}

Passes find_passes(const plan::Plan& plan) {
  Passes passes;
  std::int64_t first = 0;
  for (const plan::Replica& replica : plan.replicas) {
    const std::vector<plan::Stretch> stretches = plan::find_stretches(replica, first);
    passes.stretches.insert(passes.stretches.end(), stretches.begin(), stretches.end());
    passes.replica_of.resize(passes.stretches.size(), passes.replicas.size());
    passes.replicas.push_back({first, replica.samples});
    first += replica.samples;
  }
  return passes;
}

Result<Accumulation> accumulate_replicas(const Graph& graph, const Passes& passes,
                                         plan::BatchNormSpan batch_norm) {
  return accumulate_passes({graph, passes, batch_norm == plan::BatchNormSpan::kMicroBatch, true});
}

bool trains_batch_norm(const Graph& graph) {
  return std::any_of(graph.ops.begin(), graph.ops.end(),
                     [](const Op& op) { return trains_batch_norm(op); });
}

}  // namespace motley::synth
