#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "motley/base/check.h"
#include "motley/graph/work.h"
#include "motley/plan/shares.h"
#include "motley/program/program_text.h"
#include "motley/synth/sharding.h"
#include "motley/synth/step_emitter.h"

namespace motley::synth {
namespace {

using graph::Form;
using graph::FormKind;
using graph::ShardingRule;
using graph::Slab;
using graph::Strategy;
using program::Argument;
using program::ArgumentList;
using program::Instruction;
using program::NumberArgument;

constexpr std::int64_t kSumReduction = 2;

bool is_named(const graph::Op& op, std::string_view name) { return op.name == name; }

bool is_batch_norm(const graph::Op& op) {
  return is_named(op, "aten::native_batch_norm") ||
         is_named(op, "aten::_native_batch_norm_legit") ||
         is_named(op, "aten::_native_batch_norm_legit_functional") ||
         is_named(op, "aten::_batch_norm_with_update_functional");
}

bool is_batch_norm_backward(const graph::Op& op) {
  return is_named(op, "aten::native_batch_norm_backward") ||
         is_named(op, "aten::batch_norm_backward");
}

bool is_nll(const graph::Op& op) {
  return is_named(op, "aten::nll_loss_forward") || is_named(op, "aten::nll_loss2d_forward");
}

/// The dimension of an operand that a strategy cuts; -1: none.
int cut_dim(const Strategy& strategy, std::size_t operand) {
  const Form& form = strategy.operands[operand];
  return form.kind == FormKind::kSharded ? form.dim : -1;
}

/// Does it draw random numbers that would differ from one device's?
bool draws_elsewhere(const graph::Op& op) {
  const bool is_attention = is_named(op, "motley::attention");
  if (is_attention || is_named(op, "motley::attention_backward")) {
    const auto* dropout = std::get_if<double>(&op.arguments[is_attention ? 4 : 7].value);
    return dropout != nullptr && *dropout != 0;
  }
  return graph::is_random(op.name) && !is_named(op, "aten::native_dropout");
}

/// Has lowering the instructions for a split that the rule calls rewritten?
bool can_rewrite(const graph::Op& op, const Strategy& strategy) {
  if (is_named(op, "aten::native_dropout")) return true;
  if (is_nll(op)) return cut_dim(strategy, 0) != 1;  // samples, not classes
  return is_batch_norm(op) || is_batch_norm_backward(op);
}

struct Needed {
  ValueId value;
  Form form;
  auto operator<=>(const Needed&) const = default;
};

/// What of the graph anything wanted depends on, and in which form its outputs must end.
class Wanted {
 public:
  Wanted(const graph::Graph& graph, const Sharding& sharding) : ops_(graph.ops.size(), 0) {
    for (const graph::Output& output : graph.outputs) {
      const bool is_gradient = output.kind == graph::OutputKind::kGradient;
      forms_.push_back(is_gradient ? sharding.sources[output.of.index()] : graph::kWholeForm);
      if (output.kind == graph::OutputKind::kExtra) continue;
      want(graph, output.value);
    }
  }
  bool op(std::size_t id) const { return ops_[id] != 0; }
  const Form& output(std::size_t index) const { return forms_[index]; }

 private:
  void want(const graph::Graph& graph, ValueId value) {
    std::vector<ValueId> stack{value};
    while (!stack.empty()) {
      const OpId producer = graph.value(stack.back()).producer;
      stack.pop_back();
      if (producer.is_none() || ops_[producer.index()]) continue;
      ops_[producer.index()] = 1;
      graph::for_each_value(graph.op(producer).arguments,
                            [&](ValueId operand) { stack.push_back(operand); });
    }
  }

  std::vector<char> ops_;
  std::vector<Form> forms_;  // by output
};

/// Lowers for one rank.
class ShardedEmitter : StepEmitter {
 public:
  ShardedEmitter(const graph::Graph& graph, const Sharding& sharding,
                 const std::vector<ShardingRule>& rules, const Wanted& wanted, std::size_t rank,
                 const LowerOptions& options, program::DeviceProgram start)
      : StepEmitter(graph, options, std::move(start)),
        sharding_(sharding),
        rules_(rules),
        wanted_(wanted),
        rank_(rank),
        sizes_(sharding.global_batch),
        homes_(sharding.sources),
        keeper_(static_cast<std::size_t>(
            std::max_element(sharding.shares.begin(), sharding.shares.end()) -
            sharding.shares.begin())) {
    homes_.resize(graph.values.size());
  }

  program::DeviceProgram emit() {
    find_needed();
    add_sources();
    for (std::size_t i = 0; i < graph_.ops.size(); ++i)
      if (wanted_.op(i)) emit_operator(OpId(static_cast<std::int64_t>(i)));
    emit_outputs();
    return builder_.finish();
  }

 private:
  // --- sizes

  std::vector<std::int64_t> whole_shape(ValueId id) {
    std::vector<std::int64_t> shape;
    for (const graph::SizeExpr& size : graph_.value(id).shape)
      shape.push_back(sizes_.integer(size));
    return shape;
  }

  const std::vector<std::int64_t>& parts_of(std::int64_t extent) {
    std::vector<std::int64_t>& parts = parts_[extent];
    if (parts.empty()) parts = plan::round_shares(sharding_.shares, extent);
    return parts;
  }
  std::int64_t own(std::int64_t extent) { return parts_of(extent)[rank_]; }
  std::int64_t begin(std::int64_t extent) {
    const std::vector<std::int64_t>& parts = parts_of(extent);
    std::int64_t first = 0;
    for (std::size_t r = 0; r < rank_; ++r) first += parts[r];
    return first;
  }

  std::vector<std::int64_t> local_shape(ValueId id, const Form& form) {
    std::vector<std::int64_t> shape = whole_shape(id);
    if (form.kind == FormKind::kSharded)
      shape[static_cast<std::size_t>(form.dim)] = form.outer * own(form.extent) * form.inner;
    return shape;
  }

  static ArgumentList integers(const std::vector<std::int64_t>& values, std::int64_t times = 1) {
    ArgumentList list;
    for (const std::int64_t value : values) list.push_back({value * times});
    return list;
  }

  static std::int64_t sum(const std::vector<std::int64_t>& values) {
    std::int64_t total = 0;
    for (const std::int64_t value : values) total += value;
    return total;
  }

  // --- forms

  /// Which forms of each value operators want, to make them as soon as the value is there.
  void find_needed() {
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      if (!wanted_.op(i)) continue;
      const graph::Op& op = graph_.ops[i];
      for (std::size_t r = 0; r < op.outputs.size(); ++r)
        homes_[op.outputs[r].index()] = sharding_.ops[i].results[r];
    }
    wanted_forms_.resize(graph_.values.size());
    const auto want = [&](ValueId value, const Form& form) {
      std::vector<Form>& forms = wanted_forms_[value.index()];
      if (form != homes_[value.index()] &&
          std::find(forms.begin(), forms.end(), form) == forms.end())
        forms.push_back(form);
    };
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      if (!wanted_.op(i)) continue;
      for (std::size_t o = 0; o < rules_[i].operands.size(); ++o)
        if (!is_ignored(rules_[i], o)) want(rules_[i].operands[o], sharding_.ops[i].operands[o]);
    }
    for (std::size_t o = 0; o < graph_.outputs.size(); ++o)
      if (graph_.outputs[o].kind != graph::OutputKind::kExtra)
        want(graph_.outputs[o].value, wanted_.output(o));
  }

  static bool is_ignored(const ShardingRule& rule, std::size_t operand) {
    return std::find(rule.ignored.begin(), rule.ignored.end(), static_cast<int>(operand)) !=
           rule.ignored.end();
  }

  /// The value's buffer in a form.
  BufferId in_form(ValueId value, const Form& form) {
    if (form == homes_[value.index()]) return buffers_[value.index()];
    const auto found = converted_.find({value, form});
    if (found != converted_.end()) return found->second;
    return convert(value, form);
  }

  // --- conversions

  BufferId make(std::string op, ArgumentList arguments, DType dtype,
                std::vector<std::int64_t> shape, const std::string& label) {
    const BufferId made = builder_.add_temporary(dtype, std::move(shape));
    compute(std::move(op), std::move(arguments), {made}, label);
    return made;
  }

  /// [before, extents, after] of a tensor as flat parts, one after the other.
  BufferId cut(BufferId from, const Slab& slab, const std::vector<std::int64_t>& extents,
               const std::string& label) {
    return make("motley::cut", {{from}, {slab.before}, {integers(extents)}, {slab.after}},
                builder_.buffer(from).dtype, {slab.before * sum(extents) * slab.after}, label);
  }
  BufferId join(BufferId flat, const Slab& slab, const std::vector<std::int64_t>& extents,
                std::vector<std::int64_t> shape, const std::string& label) {
    return make("motley::join", {{flat}, {slab.before}, {integers(extents)}, {slab.after}},
                builder_.buffer(flat).dtype, std::move(shape), label);
  }
  BufferId exchange(std::string op, BufferId from, std::vector<ArgumentList> counts,
                    std::int64_t elements, const std::string& label) {
    const BufferId made = builder_.add_temporary(builder_.buffer(from).dtype, {elements});
    builder_.exchange(std::move(op), from, std::move(counts), made, label);
    return made;
  }

  BufferId gather(ValueId value, const Form& from, const std::string& label) {
    const std::vector<std::int64_t>& parts = parts_of(from.extent);
    const Slab slab = slab_of(whole_shape(value), from);
    const BufferId flat = cut(buffers_[value.index()], slab, {own(from.extent)}, label);
    const std::int64_t width = slab.before * slab.after;
    const BufferId all =
        exchange("motley::all_gather", flat, {integers(parts, width)}, width * from.extent, label);
    return join(all, slab, parts, whole_shape(value), label);
  }

  BufferId all_reduce(ValueId value, const std::string& label) {
    const BufferId copy =
        make("aten::clone",
             {{buffers_[value.index()]}, {program::KeywordArgument{"memory_format", "contiguous"}}},
             graph_.value(value).dtype, whole_shape(value), label);
    builder_.all_reduce(copy, label);
    return copy;
  }

  BufferId reduce_scatter(ValueId value, const Form& to, const std::string& label) {
    const std::vector<std::int64_t>& parts = parts_of(to.extent);
    const Slab slab = slab_of(whole_shape(value), to);
    const std::int64_t width = slab.before * slab.after;
    const BufferId flat = cut(buffers_[value.index()], slab, parts, label);
    const BufferId part = exchange("motley::reduce_scatter", flat, {integers(parts, width)},
                                   width * own(to.extent), label);
    return join(part, slab, {own(to.extent)}, local_shape(value, to), label);
  }

  /// Between two dimensions: each device sends the block of its part that is in the other's part.
  BufferId all_to_all(ValueId value, const Form& from, const Form& to, const std::string& label) {
    const std::vector<std::int64_t>& sent = parts_of(to.extent);
    const std::vector<std::int64_t>& received = parts_of(from.extent);
    const Slab out = slab_of(local_shape(value, from), to);
    const Slab in = slab_of(local_shape(value, to), from);
    const BufferId flat = cut(buffers_[value.index()], out, sent, label);
    const BufferId got =
        exchange("motley::all_to_all", flat,
                 {integers(sent, out.before * out.after), integers(received, in.before * in.after)},
                 in.before * in.after * from.extent, label);
    return join(got, in, received, local_shape(value, to), label);
  }

  BufferId take_part(ValueId value, BufferId whole, const Form& to, const std::string& label) {
    const Slab slab = slab_of(whole_shape(value), to);
    return make("motley::part",
                {{whole}, {slab.before}, number_argument(begin(to.extent)), {slab.after}},
                graph_.value(value).dtype, local_shape(value, to), label);
  }

  /// The value once in all: on the device with the largest share.
  BufferId keep_once(BufferId whole, const std::string& label) {
    if (rank_ == keeper_) return whole;
    const Argument none{program::NoneArgument{}};
    const program::Buffer like = builder_.buffer(whole);
    return make("aten::zeros_like", {{whole}, none, none, none, none, none}, like.dtype, like.shape,
                label);
  }

  BufferId convert(ValueId value, const Form& to) {
    const Form from = homes_[value.index()];
    const OpId producer = graph_.value(value).producer;
    const std::string label =
        producer.is_none() ? graph_.value(value).name : graph_.op(producer).module;
    const auto whole = [&] { return in_form(value, graph::kWholeForm); };
    BufferId made;
    if (to.kind == FormKind::kPartial) {
      made = keep_once(whole(), label);
    } else if (from.kind == FormKind::kPartial) {
      made =
          to.kind == FormKind::kWhole ? all_reduce(value, label) : reduce_scatter(value, to, label);
    } else if (to.kind == FormKind::kWhole) {
      made = gather(value, from, label);
    } else if (from.kind == FormKind::kSharded && from.dim != to.dim) {
      made = all_to_all(value, from, to, label);
    } else {
      made = take_part(value, whole(), to, label);
    }
    converted_[{value, to}] = made;
    return made;
  }

  // --- start

  void add_sources() {
    std::vector<char> used(graph_.values.size(), 0);
    for (std::size_t i = 0; i < graph_.ops.size(); ++i)
      if (wanted_.op(i))
        graph::for_each_value(graph_.ops[i].arguments, [&](ValueId v) { used[v.index()] = 1; });
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const graph::ValueRole role = graph_.values[v].role;
      if (role == graph::ValueRole::kActivation || role == graph::ValueRole::kTangent) continue;
      const ValueId id(static_cast<std::int64_t>(v));
      add_persistent(id, local_shape(id, homes_[v]));
      if (role == graph::ValueRole::kParameter && homes_[v].kind == FormKind::kSharded) {
        const Slab slab = slab_of(whole_shape(id), homes_[v]);
        builder_.set_part(buffers_[v], {slab.before, begin(slab.extent), slab.extent, slab.after});
      }
    }
    for (const graph::Output& output : graph_.outputs)
      if (output.kind == graph::OutputKind::kGradient) add_states(output.of);
    std::int64_t input = 0;
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const graph::Value& value = graph_.values[v];
      const ValueId id(static_cast<std::int64_t>(v));
      if (value.role == graph::ValueRole::kTangent && used[v])
        compute("motley::tangent", {}, {define(id)}, "tangent");
      if (value.role != graph::ValueRole::kInput) continue;
      if (used[v]) compute("motley::load", {{input}}, {buffers_[v]}, "load " + value.name);
      ++input;
    }
  }

  // --- operators

  BufferId define(ValueId id, BufferId base = {}) {
    BufferId& buffer = buffers_[id.index()];
    buffer =
        builder_.add_temporary(graph_.value(id).dtype, local_shape(id, homes_[id.index()]), base);
    return buffer;
  }

  /// Sizes of an operator's factors here.
  std::vector<std::int64_t> local_factors(OpId id) {
    const ShardingRule& rule = rules_[id.index()];
    const Strategy& strategy = sharding_.ops[id.index()];
    std::vector<std::int64_t> sizes;
    for (const graph::Factor& factor : rule.factors) sizes.push_back(factor.size);
    if (strategy.factor >= 0) {
      std::int64_t& size = sizes[static_cast<std::size_t>(strategy.factor)];
      const std::int64_t around = strategy.outer * strategy.inner;
      size = around * own(size / around);
    }
    return sizes;
  }

  /// Part of the split factor that is here, of 1.
  double part_of(OpId id) {
    const Strategy& strategy = sharding_.ops[id.index()];
    if (strategy.factor < 0) return 1;
    const auto& factor = rules_[id.index()].factors[static_cast<std::size_t>(strategy.factor)];
    const auto local = local_factors(id)[static_cast<std::size_t>(strategy.factor)];
    return static_cast<double>(local) / static_cast<double>(std::max<std::int64_t>(1, factor.size));
  }

  Argument make_argument(const graph::Argument& argument, OpId id, std::size_t& operand) {
    return std::visit(
        [&](const auto& value) -> Argument {
          using T = std::decay_t<decltype(value)>;
          if constexpr (std::is_same_v<T, graph::NoneArgument>) {
            return {program::NoneArgument{}};
          } else if constexpr (std::is_same_v<T, ValueId>) {
            const std::size_t o = operand++;
            if (is_ignored(rules_[id.index()], o)) return {buffers_[value.index()]};
            return {in_form(value, sharding_.ops[id.index()].operands[o])};
          } else if constexpr (std::is_same_v<T, graph::SizeArgument>) {
            return {sizes_.integer(value.expr)};
          } else if constexpr (std::is_same_v<T, graph::NumberArgument>) {
            return {NumberArgument{sizes_(value.expr)}};
          } else if constexpr (std::is_same_v<T, graph::KeywordArgument>) {
            return {program::KeywordArgument{value.kind, value.word}};
          } else if constexpr (std::is_same_v<T, graph::ArgumentList>) {
            ArgumentList list;
            for (const graph::Argument& element : value)
              list.push_back(make_argument(element, id, operand));
            return {list};
          } else {
            return {value};
          }
        },
        argument.value);
  }

  ArgumentList make_arguments(OpId id) {
    const std::vector<std::int64_t> sizes = local_factors(id);
    std::size_t operand = 0;
    ArgumentList made;
    for (const graph::Argument& argument :
         graph::local_arguments(graph_.op(id), rules_[id.index()], sizes, sizes_.sizes()))
      made.push_back(make_argument(argument, id, operand));
    return made;
  }

  void emit_operator(OpId id) {
    const graph::Op& op = graph_.op(id);
    const Strategy& strategy = sharding_.ops[id.index()];
    const graph::Split split =
        strategy.factor < 0
            ? graph::Split::kPlain
            : rules_[id.index()].factors[static_cast<std::size_t>(strategy.factor)].split;
    if (is_named(op, "aten::native_dropout")) {
      emit_dropout(id);
    } else if (split == graph::Split::kRewritten) {
      if (is_nll(op)) emit_nll_mean(id);
      if (is_batch_norm(op)) emit_batch_norm(id);
      if (is_batch_norm_backward(op)) emit_batch_norm_backward(id);
    } else if (part_of(id) == 0) {
      emit_nothing(id);
    } else {
      emit_plain(id, split == graph::Split::kMean ? part_of(id) : 1);
    }
    for (const ValueId output : op.outputs)
      for (const Form& form : wanted_forms_[output.index()]) in_form(output, form);
  }

  static BufferId first_operand(const ArgumentList& arguments) {
    BufferId first;
    program::for_each_buffer(arguments, [&](BufferId id) {
      if (first.is_none()) first = id;
    });
    return first;
  }

  /// `weight`: what the results count here.
  void emit_plain(OpId id, double weight) {
    const graph::Op& op = graph_.op(id);
    Instruction made = make_named(op.name, id);
    made.overload = op.overload;
    made.arguments = make_arguments(id);
    made.returns_list = op.returns_list;
    const BufferId base = graph::is_view(op.name) ? first_operand(made.arguments) : BufferId();
    std::vector<std::pair<BufferId, BufferId>> weighed;  // raw, result
    for (const ValueId output : op.outputs) {
      const BufferId result = define(output, base);
      made.outputs.push_back(result);
      if (weight == 1) continue;
      const program::Buffer like = builder_.buffer(result);
      made.outputs.back() = builder_.add_temporary(like.dtype, like.shape);
      weighed.emplace_back(made.outputs.back(), result);
    }
    builder_.compute(std::move(made));
    for (const auto& [raw, result] : weighed) {
      Instruction times = make_named("aten::mul", id);
      times.overload = "Scalar";
      times.arguments = {{raw}, {NumberArgument{weight}}};
      times.outputs = {result};
      builder_.compute(std::move(times));
    }
  }

  /// No part of it is here: its results are empty, or terms of zero.
  void emit_nothing(OpId id) {
    const graph::Op& op = graph_.op(id);
    make_arguments(id);  // exchanges that others wait for
    const Argument none{program::NoneArgument{}};
    for (const ValueId output : op.outputs) {
      const DType dtype = graph_.value(output).dtype;
      if (dtype == DType::kNone) {
        define(output);
        continue;
      }
      const BufferId made = define(output);
      compute("aten::zeros",
              {{integers(builder_.buffer(made).shape)},
               {program::KeywordArgument{"dtype", std::string(dtype_name(dtype))}},
               none,
               {program::KeywordArgument{"device", "local"}},
               none},
              {made}, op.module);
    }
  }

  /// x seen as [outer, extent, inner]; a whole x as one that all devices share.
  void emit_dropout(OpId id) {
    const graph::Op& op = graph_.op(id);
    const Form& form = sharding_.ops[id.index()].operands[0];
    const auto x = std::get<ValueId>(op.arguments[0].value);
    Slab slab{1, 1, sum_of_elements(x)};
    std::int64_t first = 0;
    if (form.kind == FormKind::kSharded) {
      slab = slab_of(whole_shape(x), form);
      first = begin(slab.extent);
    }
    const ArgumentList given = make_arguments(id);
    if (given.size() > 2 && std::holds_alternative<bool>(given[2].value) &&
        !std::get<bool>(given[2].value))
      return emit_plain(id, 1);
    Instruction made = make_named("motley::dropout", id);
    made.arguments = {given[0],
                      given[1],
                      number_argument(id.value),
                      {slab.before},
                      {slab.after},
                      number_argument(first),
                      number_argument(slab.extent)};
    for (const ValueId output : op.outputs) made.outputs.push_back(define(output));
    builder_.compute(std::move(made));
  }

  std::int64_t sum_of_elements(ValueId value) {
    std::int64_t elements = 1;
    for (const std::int64_t size : whole_shape(value)) elements *= size;
    return elements;
  }

  /// loss = local sum / count over all devices; the count serves the backward pass.
  void emit_nll_mean(OpId id) {
    const graph::Op& op = graph_.op(id);
    ArgumentList given = make_arguments(id);
    const BufferId count = builder_.add_temporary(DType::kF32, {});
    compute("motley::label_count", {given[1], given[2], given[4]}, {count}, op.module);
    builder_.all_reduce(count, "labels");
    given[3].value = kSumReduction;
    const DType dtype = graph_.value(op.outputs[0]).dtype;
    const BufferId sum = builder_.add_temporary(dtype, {}),
                   unused = builder_.add_temporary(dtype, {});
    Instruction made = make_named(op.name, id);
    made.overload = op.overload;
    made.arguments = std::move(given);
    made.outputs = {sum, unused};
    builder_.compute(std::move(made));
    BufferId total = count;
    if (dtype != DType::kF32) {
      const Argument none{program::NoneArgument{}};
      total = make("aten::_to_copy",
                   {{count},
                    {program::KeywordArgument{"dtype", std::string(dtype_name(dtype))}},
                    none,
                    none,
                    none,
                    {false},
                    none},
                   dtype, {}, op.module);
    }
    buffers_[op.outputs[1].index()] = total;
    Instruction quotient = make_named("aten::div", id);
    quotient.overload = "Tensor";
    quotient.arguments = {{sum}, {total}};
    quotient.outputs = {define(op.outputs[0])};
    builder_.compute(std::move(quotient));
  }

  std::int64_t channel_count(ValueId x) {
    const std::vector<std::int64_t> shape = whole_shape(x);
    return shape[1] == 0 ? 0 : sum_of_elements(x) / shape[1];
  }

  BufferId channel_sums(std::string op, ArgumentList arguments, ValueId x, OpId origin) {
    const std::string& label = graph_.op(origin).module;
    const BufferId sums =
        make(std::move(op), std::move(arguments), DType::kF64, {2, whole_shape(x)[1]}, label);
    builder_.all_reduce(sums, label);
    return sums;
  }

  void emit_batch_norm(OpId id) {
    const graph::Op& op = graph_.op(id);
    const auto x = std::get<ValueId>(op.arguments[0].value);
    const ArgumentList given = make_arguments(id);
    const bool has_statistics = op.overload != "no_stats";
    const bool has_reserve = is_named(op, "aten::_batch_norm_with_update_functional");
    const Argument none{program::NoneArgument{}};
    const BufferId sums = channel_sums("motley::batch_norm_sums", {given[0]}, x, id);
    Instruction made = make_named("motley::batch_norm", id);
    made.arguments = {given[0],
                      given[1],
                      given[2],
                      has_statistics ? given[3] : none,
                      has_statistics ? given[4] : none,
                      {sums},
                      number_argument(channel_count(x)),
                      given[given.size() - 2],
                      given[given.size() - 1]};
    for (std::size_t o = 0; o < op.outputs.size(); ++o)
      if (!(has_reserve && o == 3)) made.outputs.push_back(define(op.outputs[o]));
    while (made.outputs.size() < 5)
      made.outputs.push_back(builder_.add_temporary(DType::kNone, {}));
    builder_.compute(std::move(made));
  }

  void emit_batch_norm_backward(OpId id) {
    const graph::Op& op = graph_.op(id);
    const auto x = std::get<ValueId>(op.arguments[1].value);
    const ArgumentList given = make_arguments(id);
    const BufferId sums = channel_sums("motley::batch_norm_backward_sums",
                                       {given[0], given[1], given[5], given[6]}, x, id);
    Instruction made = make_named("motley::batch_norm_backward", id);
    made.arguments = {given[0],
                      given[1],
                      given[2],
                      given[5],
                      given[6],
                      {sums},
                      number_argument(channel_count(x))};
    for (const ValueId output : op.outputs) made.outputs.push_back(define(output));
    builder_.compute(std::move(made));
  }

  // --- end

  void emit_outputs() {
    std::map<DType, Updates> by_dtype;
    for (std::size_t o = 0; o < graph_.outputs.size(); ++o) {
      const graph::Output& output = graph_.outputs[o];
      if (output.kind == graph::OutputKind::kExtra) continue;
      add_output(static_cast<std::int64_t>(o), in_form(output.value, wanted_.output(o)),
                 by_dtype[graph_.value(output.value).dtype]);
    }
    const BufferId stop = emit_stop_request();
    builder_.all_reduce(stop, "stop");
    for (const auto& [dtype, updates] : by_dtype) emit_update(updates, "update");
    emit_end(stop);
  }

  const Sharding& sharding_;
  const std::vector<ShardingRule>& rules_;
  const Wanted& wanted_;
  const std::size_t rank_;
  SizeEvaluator sizes_;
  std::vector<Form> homes_;                      // by value: as its operator gives it
  const std::size_t keeper_;                     // the rank that keeps what must count once
  std::vector<std::vector<Form>> wanted_forms_;  // by value, besides its home
  std::map<Needed, BufferId> converted_;
  std::map<std::int64_t, std::vector<std::int64_t>> parts_;  // by extent
};

tl::unexpected<Error> refuse(const graph::Graph& graph, const std::string& what) {
  return usage_error("synth.sharding", fmt::format("{}: {}", graph.name, what));
}

/// Is the strategy one of the rule's?
bool is_of_rule(const ShardingRule& rule, const Strategy& strategy) {
  if (strategy.factor >= 0) {
    if (strategy.factor >= static_cast<int>(rule.factors.size()) || strategy.outer < 1 ||
        strategy.inner < 1)
      return false;
    return split_strategy(rule, strategy.factor, strategy.outer, strategy.inner) == strategy;
  }
  if (strategy == whole_strategy(rule)) return true;
  const std::vector<Strategy> ways = linear_strategies(rule);
  return std::find(ways.begin(), ways.end(), strategy) != ways.end();
}

Result<void> verify_sharding(const graph::Graph& graph, const Sharding& sharding,
                             const std::vector<ShardingRule>& rules) {
  if (sharding.devices.empty() || sharding.devices.size() != sharding.shares.size() ||
      sharding.ops.size() != graph.ops.size() || sharding.sources.size() != graph.values.size())
    return refuse(graph, "the sharding is not of this graph");
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const OpId id(static_cast<std::int64_t>(i));
    if (!is_of_rule(rules[i], sharding.ops[i]) ||
        !can_lower(graph, id, rules[i], sharding.ops[i], sharding.shares))
      return refuse(
          graph, fmt::format("operator {} in module '{}' cannot be split so; its rule is "
                             "{}",
                             graph.ops[i].full_name(), graph.ops[i].module, print_rule(rules[i])));
  }
  return {};
}

}  // namespace

std::vector<ShardingRule> find_rules(const graph::Graph& graph, std::int64_t batch) {
  const graph::Sizes sizes{{"batch", batch}};
  std::vector<ShardingRule> rules;
  rules.reserve(graph.ops.size());
  for (std::size_t i = 0; i < graph.ops.size(); ++i)
    rules.push_back(graph::find_rule_or_whole(graph, OpId(static_cast<std::int64_t>(i)), sizes));
  return rules;
}

bool can_lower(const graph::Graph& graph, OpId op, const ShardingRule& rule,
               const Strategy& strategy, const std::vector<double>& shares) {
  const graph::Op& about = graph.op(op);
  for (std::size_t r = 0; r < strategy.results.size(); ++r) {
    const DType dtype = graph.value(about.outputs[r]).dtype;
    if (strategy.results[r].kind == FormKind::kPartial && dtype != DType::kNone &&
        !is_floating(dtype))
      return false;
  }
  for (std::size_t o = 0; o < strategy.operands.size(); ++o)
    if (strategy.operands[o].kind == FormKind::kPartial &&
        !is_floating(graph.value(rule.operands[o]).dtype))
      return false;
  if (draws_elsewhere(about)) return false;
  if (strategy.factor < 0) return true;
  const graph::Factor& factor = rule.factors[static_cast<std::size_t>(strategy.factor)];
  if (factor.split == graph::Split::kRewritten) return can_rewrite(about, strategy);
  // A result that does not depend on the split must be computed where no part of it is, too.
  const std::vector<std::int64_t> parts =
      plan::round_shares(shares, factor.size / (strategy.outer * strategy.inner));
  const bool has_empty = std::find(parts.begin(), parts.end(), 0) != parts.end();
  return !has_empty || std::none_of(strategy.results.begin(), strategy.results.end(),
                                    [](const Form& form) { return form == graph::kWholeForm; });
}

Form input_form(const graph::Graph& graph, ValueId input, std::int64_t global_batch) {
  const std::vector<graph::SizeExpr>& shape = graph.value(input).shape;
  if (shape.empty() || !shape[0].depends_on("batch")) return graph::kWholeForm;
  return {FormKind::kSharded, 0, 1, global_batch, 1};
}

Result<program::Program> lower_sharded(const graph::Graph& graph, const Sharding& sharding,
                                       const LowerOptions& options) {
  const std::vector<ShardingRule> rules = find_rules(graph, sharding.global_batch);
  MOTLEY_RETURN_IF_ERROR(verify_sharding(graph, sharding, rules));
  const Wanted wanted(graph, sharding);
  const std::vector<std::int64_t> samples =
      plan::round_shares(sharding.shares, sharding.global_batch);
  program::Program program;
  program.global_batch = sharding.global_batch;
  program::Group group;
  std::int64_t first = 0;
  for (std::size_t rank = 0; rank < sharding.devices.size(); ++rank) {
    group.members.push_back(Rank(static_cast<std::int64_t>(rank)));
    program.devices.push_back(ShardedEmitter(graph, sharding, rules, wanted, rank, options,
                                             {sharding.devices[rank], samples[rank], first})
                                  .emit());
    first += samples[rank];
  }
  program.groups.push_back(std::move(group));
  return program;
}

}  // namespace motley::synth
