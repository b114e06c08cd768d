#include <fmt/format.h>

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

#include "motley/base/check.h"
#include "motley/graph/work.h"
#include "motley/synth/lower_device.h"
#include "motley/synth/step_emitter.h"

namespace motley::synth {
namespace {

using program::Argument;
using program::ArgumentList;
using program::Instruction;
using program::NumberArgument;

constexpr std::int64_t kSumReduction = 2;

/// Emits one device's program: inputs, operators in schedule order with their rewrites, buckets as
/// they become ready, then updates and the report.
class DeviceEmitter : StepEmitter {
 public:
  DeviceEmitter(const graph::Graph& graph, const Analysis& analysis, const Placement& placement,
                const LowerOptions& options)
      : StepEmitter(graph, options, {placement.device, placement.samples, placement.first_sample}),
        forms_(analysis.forms),
        schedule_(analysis.schedule),
        placement_(placement),
        is_alone_(placement.ranks == 1),
        local_(placement.samples),
        global_(placement.global_batch),
        sums_(graph.values.size()) {}

  program::DeviceProgram emit() {
    add_persistent_buffers();
    emit_inputs();
    std::size_t next_bucket = 0;
    for (std::size_t i = 0; i <= schedule_.order.size(); ++i) {
      if (i == schedule_.early) emit_early_counts();
      if (i == schedule_.order.size()) break;
      emit_operator(schedule_.order[i]);
      for (; next_bucket < schedule_.buckets.size() &&
             schedule_.buckets[next_bucket].ready <= static_cast<std::int64_t>(i);
           ++next_bucket)
        emit_bucket(next_bucket);
    }
    emit_updates();
    return builder_.finish();
  }

 private:
  // --- values and arguments

  std::vector<std::int64_t> local_shape(ValueId id) {
    std::vector<std::int64_t> shape;
    for (const graph::SizeExpr& size : graph_.value(id).shape)
      shape.push_back(local_.integer(size));
    return shape;
  }

  std::int64_t global_elements(ValueId id) {
    std::int64_t elements = 1;
    for (const graph::SizeExpr& size : graph_.value(id).shape) elements *= global_.integer(size);
    return elements;
  }

  /// The value's buffer, made if this is its definition.
  BufferId define(ValueId id, BufferId base = {}) {
    BufferId& buffer = buffers_[id.index()];
    MOTLEY_CHECK(buffer.is_none());
    buffer = builder_.add_temporary(graph_.value(id).dtype, local_shape(id), base);
    return buffer;
  }

  const Treatment& treatment(OpId id) const { return forms_.ops[id.index()]; }

  /// Where an operator reads a value: its sum over the devices if the operator needs that.
  BufferId read(ValueId value, const std::vector<ValueId>& summed) const {
    if (!is_alone_)
      for (const ValueId wanted : summed)
        if (wanted == value) return sums_[value.index()];
    return buffers_[value.index()];
  }

  Argument make_argument(const graph::Argument& argument, const std::vector<ValueId>& summed) {
    return std::visit(
        [&](const auto& value) -> Argument {
          using T = std::decay_t<decltype(value)>;
          if constexpr (std::is_same_v<T, graph::NoneArgument>) {
            return {program::NoneArgument{}};
          } else if constexpr (std::is_same_v<T, ValueId>) {
            return {read(value, summed)};
          } else if constexpr (std::is_same_v<T, graph::SizeArgument>) {
            return {local_.integer(value.expr)};
          } else if constexpr (std::is_same_v<T, graph::NumberArgument>) {
            return {NumberArgument{global_(value.expr)}};
          } else if constexpr (std::is_same_v<T, graph::KeywordArgument>) {
            return {program::KeywordArgument{value.kind, value.word}};
          } else if constexpr (std::is_same_v<T, graph::ArgumentList>) {
            return {make_arguments(value, summed)};
          } else {
            return {value};
          }
        },
        argument.value);
  }

  ArgumentList make_arguments(const graph::ArgumentList& arguments,
                              const std::vector<ValueId>& summed) {
    ArgumentList list;
    list.reserve(arguments.size());
    for (const graph::Argument& argument : arguments)
      list.push_back(make_argument(argument, summed));
    return list;
  }

  /// The operator with this device's arguments and no outputs yet.
  Instruction make_instruction(OpId id) {
    const graph::Op& op = graph_.op(id);
    Instruction made = make_named(op.name, id);
    made.overload = op.overload;
    made.arguments = make_arguments(op.arguments, treatment(id).summed);
    made.returns_list = op.returns_list;
    return made;
  }

  // --- start

  void add_persistent_buffers() {
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const graph::Value& value = graph_.values[v];
      if (value.role == graph::ValueRole::kActivation || value.role == graph::ValueRole::kTangent)
        continue;
      const ValueId id(static_cast<std::int64_t>(v));
      add_persistent(id, local_shape(id));
    }
    for (const graph::Output& output : graph_.outputs)
      if (output.kind == graph::OutputKind::kGradient) add_states(output.of);
  }

  void emit_inputs() {
    std::vector<char> used(graph_.values.size(), 0);
    for (const OpId id : schedule_.order)
      graph::for_each_value(graph_.op(id).arguments, [&](ValueId v) { used[v.index()] = 1; });
    StepEmitter::emit_inputs(used);
  }

  void emit_early_counts() {
    for (const OpId id : schedule_.early_counts) label_count(id);
  }

  // --- operators

  void emit_operator(OpId id) {
    const graph::Op& op = graph_.op(id);
    Rewrite rewrite = treatment(id).rewrite;
    if (is_alone_ && rewrite != Rewrite::kDropout) rewrite = Rewrite::kNone;
    switch (rewrite) {
      case Rewrite::kNone:
        emit_plain(id);
        break;
      case Rewrite::kDropout:
        emit_dropout(id);
        break;
      case Rewrite::kMean:
        emit_mean(id);
        break;
      case Rewrite::kMeanLoss:
        emit_mean_loss(id);
        break;
      case Rewrite::kMeanLossBackward:
        emit_mean_loss_backward(id);
        break;
      case Rewrite::kNllMean:
        emit_nll_mean(id);
        break;
      case Rewrite::kBatchNorm:
        emit_batch_norm(id);
        break;
      case Rewrite::kBatchNormLocal:
        emit_batch_norm_local(id);
        break;
      case Rewrite::kBatchNormBackward:
        emit_batch_norm_backward(id);
        break;
    }
    if (is_alone_) return;
    for (const ValueId output : op.outputs)
      if (schedule_.summed[output.index()]) sum_value(output, id);
  }

  /// Starts the sum of a partial value over the devices.
  void sum_value(ValueId value, OpId producer) {
    BufferId buffer = buffers_[value.index()];
    const std::string& module = graph_.op(producer).module;
    if (!schedule_.in_place[value.index()]) {
      const BufferId copy = builder_.add_temporary(graph_.value(value).dtype, local_shape(value));
      compute("aten::clone",
              {buffer_argument(buffer), {program::KeywordArgument{"memory_format", "contiguous"}}},
              {copy}, module);
      buffer = copy;
    }
    builder_.all_reduce(buffer, module);
    sums_[value.index()] = buffer;
  }

  BufferId first_operand(const ArgumentList& arguments) const {
    BufferId first;
    program::for_each_buffer(arguments, [&](BufferId id) {
      if (first.is_none()) first = id;
    });
    return first;
  }

  void emit_plain(OpId id) {
    Instruction made = make_instruction(id);
    const graph::Op& op = graph_.op(id);
    const BufferId base = graph::is_view(op.name) ? first_operand(made.arguments) : BufferId();
    for (const ValueId output : op.outputs) made.outputs.push_back(define(output, base));
    builder_.compute(std::move(made));
  }

  /// x seen as [outer, samples, inner]; a replicated x as one sample that all devices share.
  void emit_dropout(OpId id) {
    const graph::Op& op = graph_.op(id);
    const auto x = std::get<ValueId>(op.arguments[0].value);
    const Form& form = forms_.values[x.index()];
    const std::vector<std::int64_t> shape = local_shape(x);
    std::int64_t outer = 1, inner = 1, first = 0, global = 1;
    const bool by_sample = form.kind == FormKind::kSharded;
    if (by_sample) {
      outer = form.outer;
      inner = form.inner;
      first = placement_.first_sample;
      global = placement_.global_batch;
    }
    for (int d = 0; d < static_cast<int>(shape.size()); ++d) {
      if (by_sample && d == form.dim) continue;
      (by_sample && d < form.dim ? outer : inner) *= shape[static_cast<std::size_t>(d)];
    }
    const std::vector<ValueId>& summed = treatment(id).summed;
    emit_dropout_at(id, {read(x, summed)}, make_argument(op.arguments[1], summed),
                    {outer, inner, first, global, id}, [&](ValueId v) { return define(v); });
  }

  BufferId like(ValueId value) {
    return builder_.add_temporary(graph_.value(value).dtype, local_shape(value));
  }

  /// A mean over the batch: the local sum over the global count.
  void emit_mean(OpId id) {
    const graph::Op& op = graph_.op(id);
    Instruction made = make_instruction(id);
    made.op = "aten::sum";
    if (!made.overload.empty()) made.overload = "dim_IntList";
    const BufferId sum = like(op.outputs[0]);
    made.outputs = {sum};
    builder_.compute(std::move(made));
    const auto x = std::get<ValueId>(op.arguments[0].value);
    divide(sum, global_elements(x) / std::max<std::int64_t>(1, global_elements(op.outputs[0])),
           define(op.outputs[0]), id);
  }

  /// Position of the reduction among a loss's arguments: the last plain integer of forward and
  /// backward alike.
  static std::size_t reduction_position(const graph::Op& op) {
    for (std::size_t i = op.arguments.size(); i-- > 0;)
      if (std::holds_alternative<std::int64_t>(op.arguments[i].value)) return i;
    MOTLEY_CHECK(false);
    return 0;
  }

  void emit_mean_loss(OpId id) {
    const graph::Op& op = graph_.op(id);
    Instruction made = make_instruction(id);
    made.arguments[reduction_position(op)].value = kSumReduction;
    const BufferId sum = like(op.outputs[0]);
    made.outputs = {sum};
    builder_.compute(std::move(made));
    divide(sum, global_elements(std::get<ValueId>(op.arguments[0].value)), define(op.outputs[0]),
           id);
  }

  void emit_mean_loss_backward(OpId id) {
    const graph::Op& op = graph_.op(id);
    Instruction made = make_instruction(id);
    const auto gradient = std::get<ValueId>(op.arguments[0].value);
    const BufferId scaled = like(gradient);
    divide(std::get<BufferId>(made.arguments[0].value),
           global_elements(std::get<ValueId>(op.arguments[1].value)), scaled, id);
    made.arguments[0].value = scaled;
    made.arguments[reduction_position(op)].value = kSumReduction;
    made.outputs = {define(op.outputs[0])};
    builder_.compute(std::move(made));
  }

  /// What the labels of the global batch are worth.
  BufferId label_count(OpId id) {
    const graph::Op& op = graph_.op(id);
    const std::vector<ValueId>& summed = treatment(id).summed;
    return StepEmitter::label_count(
        id,
        {make_argument(op.arguments[1], summed), make_argument(op.arguments[2], summed),
         make_argument(op.arguments[4], summed)},
        Labels::kSpread);
  }

  /// loss = local sum / global count; the count serves the backward pass as total weight.
  void emit_nll_mean(OpId id) {
    const graph::Op& op = graph_.op(id);
    const BufferId counted = label_count(id);
    Instruction made = make_instruction(id);
    made.arguments[3].value = kSumReduction;
    const BufferId sum = like(op.outputs[0]);
    made.outputs = {sum, like(op.outputs[1])};
    builder_.compute(std::move(made));
    const BufferId count = converted(counted, graph_.value(op.outputs[1]).dtype, id);
    buffers_[op.outputs[1].index()] = count;
    emit_quotient(sum, count, define(op.outputs[0]), id);
  }

  // --- batch norm

  Channels channels_of(ValueId x) {
    const graph::SizeExpr& size = graph_.value(x).shape[1];
    const std::int64_t channels = global_.integer(size);
    return {local_.integer(size), channels == 0 ? 0 : global_elements(x) / channels};
  }

  /// Statistics of the global batch.
  void emit_batch_norm(OpId id) {
    const graph::Op& op = graph_.op(id);
    const auto x = std::get<ValueId>(op.arguments[0].value);
    emit_batch_norm_over(id, make_arguments(op.arguments, treatment(id).summed), channels_of(x),
                         [&](ValueId v) { return define(v); });
  }

  /// Statistics of the own samples; the running ones become the replicas' weighted mean, of which
  /// this is one term.
  void emit_batch_norm_local(OpId id) {
    const graph::Op& op = graph_.op(id);
    Instruction made = make_instruction(id);
    std::vector<std::pair<ValueId, BufferId>> running;
    for (const ValueId output : op.outputs) {
      const bool is_running = forms_.values[output.index()].kind == FormKind::kPartial;
      made.outputs.push_back(is_running ? like(output) : define(output));
      if (is_running) running.emplace_back(output, made.outputs.back());
    }
    builder_.compute(std::move(made));
    const double share =
        static_cast<double>(placement_.samples) / static_cast<double>(placement_.global_batch);
    for (const auto& [value, buffer] : running) {
      Instruction term = make_named("aten::mul", id);
      term.overload = "Scalar";
      term.arguments = {{buffer}, {NumberArgument{share}}};
      term.outputs = {define(value)};
      builder_.compute(std::move(term));
    }
  }

  void emit_batch_norm_backward(OpId id) {
    const graph::Op& op = graph_.op(id);
    const auto x = std::get<ValueId>(op.arguments[1].value);
    emit_batch_norm_backward_over(id, make_arguments(op.arguments, treatment(id).summed),
                                  channels_of(x), [&](ValueId v) { return define(v); });
  }

  // --- exchange and updates

  static std::string bucket_label(std::size_t bucket) { return fmt::format("bucket {}", bucket); }

  void emit_bucket(std::size_t index) {
    const Bucket& bucket = schedule_.buckets[index];
    std::vector<BufferId> items;
    std::int64_t elements = 0;
    for (const BucketItem& item : bucket.items) {
      items.push_back(item.output == BucketItem::kStop ? emit_stop_request()
                                                       : buffers_[item.value.index()]);
      elements += builder_.buffer(items.back()).elements();
    }
    flats_.push_back(builder_.add_temporary(bucket.dtype, {elements}));
    compute("motley::pack", {{buffer_list(items)}}, {flats_.back()}, bucket_label(index));
    builder_.all_reduce(flats_.back(), bucket_label(index));
  }

  /// Updates by dtype of the parameter, for the kernels take one dtype at a time.
  void emit_direct_updates() {
    std::map<DType, Updates> by_dtype;
    for (const std::int64_t index : schedule_.direct) {
      const graph::Output& output = graph_.outputs[static_cast<std::size_t>(index)];
      const std::size_t value = output.value.index();
      const BufferId summed = sums_[value];
      add_output(index, summed.is_none() ? buffers_[value] : summed,
                 by_dtype[graph_.value(output.value).dtype]);
    }
    for (const auto& [dtype, updates] : by_dtype) emit_update(updates, "update");
  }

  void emit_bucket_updates(std::size_t index) {
    const Bucket& bucket = schedule_.buckets[index];
    std::vector<BufferId> parts;
    Updates updates;
    for (const BucketItem& item : bucket.items) {
      const bool is_stop = item.output == BucketItem::kStop;
      parts.push_back(builder_.add_temporary(
          bucket.dtype, is_stop ? std::vector<std::int64_t>{1} : local_shape(item.value),
          flats_[index]));
      if (is_stop)
        stop_ = parts.back();
      else
        add_output(item.output, parts.back(), updates);
    }
    compute("motley::unpack", {{flats_[index]}}, parts, bucket_label(index));
    emit_update(updates, bucket_label(index));
  }

  void emit_updates() {
    emit_direct_updates();
    for (std::size_t b = 0; b < schedule_.buckets.size(); ++b) emit_bucket_updates(b);
    emit_end(stop_);
  }

  const FormTable& forms_;
  const Schedule& schedule_;
  const Placement& placement_;
  const bool is_alone_;
  SizeEvaluator local_, global_;
  std::vector<BufferId> sums_;   // by value: its sum over the devices
  std::vector<BufferId> flats_;  // by bucket
  BufferId stop_;
};

}  // namespace

program::DeviceProgram emit_device(const graph::Graph& graph, const Analysis& analysis,
                                   const Placement& placement, const LowerOptions& options) {
  return DeviceEmitter(graph, analysis, placement, options).emit();
}

}  // namespace motley::synth
