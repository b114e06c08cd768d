#include "motley/synth/step_emitter.h"

#include <fmt/format.h>

#include <array>
#include <map>
#include <utility>

#include "motley/base/check.h"

namespace motley::synth {

using program::Argument;
using program::ArgumentList;
using program::Instruction;
using program::NumberArgument;

graph::Number SizeEvaluator::operator()(const graph::SizeExpr& expr) {
  const auto [entry, is_new] = known_.try_emplace(expr.text());
  if (is_new) entry->second = expr.evaluate(sizes_);
  return entry->second;
}

std::int64_t SizeEvaluator::integer(const graph::SizeExpr& expr) {
  const graph::Number number = (*this)(expr);
  const auto* value = std::get_if<std::int64_t>(&number);
  MOTLEY_CHECK(value != nullptr);
  return *value;
}

Argument buffer_argument(BufferId id) { return {id}; }
Argument number_argument(std::int64_t value) { return {NumberArgument{value}}; }

ArgumentList buffer_list(const std::vector<BufferId>& ids) {
  ArgumentList list;
  list.reserve(ids.size());
  for (const BufferId id : ids) list.push_back(buffer_argument(id));
  return list;
}

StepEmitter::StepEmitter(const graph::Graph& graph, const LowerOptions& options,
                         program::DeviceProgram start)
    : graph_(graph),
      options_(options),
      builder_(std::move(start)),
      buffers_(graph.values.size()),
      states_(graph.values.size()) {}

Instruction StepEmitter::make_named(std::string name, OpId origin) const {
  Instruction made;
  made.op = std::move(name);
  made.origin = origin;
  made.label = graph_.op(origin).module;
  return made;
}

void StepEmitter::compute(std::string op, ArgumentList arguments, std::vector<BufferId> outputs,
                          std::string label) {
  Instruction made;
  made.op = std::move(op);
  made.arguments = std::move(arguments);
  made.outputs = std::move(outputs);
  made.label = std::move(label);
  builder_.compute(std::move(made));
}

void StepEmitter::emit_inputs(const std::vector<char>& used) {
  std::int64_t input = 0;
  for (std::size_t v = 0; v < graph_.values.size(); ++v) {
    const graph::Value& value = graph_.values[v];
    if (value.role == graph::ValueRole::kTangent && used[v]) {
      buffers_[v] = builder_.add_temporary(value.dtype, {});
      compute("motley::tangent", {}, {buffers_[v]}, "tangent");
    }
    if (value.role != graph::ValueRole::kInput) continue;
    if (used[v]) compute("motley::load", {{input}}, {buffers_[v]}, "load " + value.name);
    ++input;
  }
}

void StepEmitter::emit_dropout_at(OpId id, const Argument& x, const Argument& p,
                                  const DropoutPlace& place, const Define& define) {
  Instruction made = make_named("motley::dropout", id);
  made.arguments = {x,
                    p,
                    number_argument(place.drawn_by.value),
                    {place.outer},
                    {place.inner},
                    number_argument(place.first),
                    number_argument(place.global)};
  for (const ValueId output : graph_.op(id).outputs) made.outputs.push_back(define(output));
  builder_.compute(std::move(made));
}

BufferId StepEmitter::channel_sums(std::string op, ArgumentList arguments, std::int64_t channels,
                                   OpId origin) {
  const BufferId sums = builder_.add_temporary(DType::kF64, {2, channels});
  Instruction made = make_named(std::move(op), origin);
  made.arguments = std::move(arguments);
  made.outputs = {sums};
  builder_.compute(std::move(made));
  builder_.all_reduce(sums, graph_.op(origin).module);
  return sums;
}

void StepEmitter::emit_batch_norm_over(OpId id, const ArgumentList& given, Channels channels,
                                       const Define& define) {
  const graph::Op& op = graph_.op(id);
  const bool has_statistics = op.overload != "no_stats";
  const bool has_reserve = op.name == "aten::_batch_norm_with_update_functional";
  const Argument none{program::NoneArgument{}};
  const BufferId sums = channel_sums("motley::batch_norm_sums", {given[0]}, channels.local, id);
  Instruction made = make_named("motley::batch_norm", id);
  made.arguments = {given[0],
                    given[1],
                    given[2],
                    has_statistics ? given[3] : none,
                    has_statistics ? given[4] : none,
                    {sums},
                    number_argument(channels.elements),
                    given[given.size() - 2],
                    given[given.size() - 1]};
  for (std::size_t o = 0; o < op.outputs.size(); ++o)
    if (!(has_reserve && o == 3)) made.outputs.push_back(define(op.outputs[o]));
  while (made.outputs.size() < 5) made.outputs.push_back(builder_.add_temporary(DType::kNone, {}));
  builder_.compute(std::move(made));
}

void StepEmitter::emit_batch_norm_backward_over(OpId id, const ArgumentList& given,
                                                Channels channels, const Define& define) {
  const BufferId sums = channel_sums("motley::batch_norm_backward_sums",
                                     {given[0], given[1], given[5], given[6]}, channels.local, id);
  Instruction made = make_named("motley::batch_norm_backward", id);
  made.arguments = {
      given[0], given[1], given[2], given[5], given[6], {sums}, number_argument(channels.elements)};
  for (const ValueId output : graph_.op(id).outputs) made.outputs.push_back(define(output));
  builder_.compute(std::move(made));
}

BufferId StepEmitter::label_count(OpId origin, ArgumentList labels, Labels kind) {
  const auto* weights = std::get_if<BufferId>(&labels[1].value);
  const auto [entry, is_new] = counts_.try_emplace({std::get<BufferId>(labels[0].value),
                                                    weights == nullptr ? BufferId() : *weights,
                                                    std::get<std::int64_t>(labels[2].value), kind});
  if (!is_new) return entry->second;
  const BufferId count = builder_.add_temporary(DType::kF32, {});
  Instruction made = make_named("motley::label_count", origin);
  made.arguments = std::move(labels);
  made.outputs = {count};
  builder_.compute(std::move(made));
  if (kind == Labels::kSpread) builder_.all_reduce(count, "labels");
  entry->second = count;
  return count;
}

BufferId StepEmitter::converted(BufferId value, DType dtype, OpId origin) {
  if (builder_.buffer(value).dtype == dtype) return value;
  const BufferId result = builder_.add_temporary(dtype, builder_.buffer(value).shape);
  Instruction made = make_named("aten::_to_copy", origin);
  const Argument none{program::NoneArgument{}};
  const Argument to{program::KeywordArgument{"dtype", std::string(dtype_name(dtype))}};
  made.arguments = {{value}, to, none, none, none, {false}, none};
  made.outputs = {result};
  builder_.compute(std::move(made));
  return result;
}

void StepEmitter::emit_quotient(BufferId numerator, BufferId divisor, BufferId quotient,
                                OpId origin) {
  Instruction made = make_named("aten::div", origin);
  made.overload = "Tensor";
  made.arguments = {{numerator}, {divisor}};
  made.outputs = {quotient};
  builder_.compute(std::move(made));
}

void StepEmitter::divide(BufferId numerator, std::int64_t divisor, BufferId quotient, OpId origin) {
  Instruction made = make_named("aten::div", origin);
  made.overload = "Scalar";
  made.arguments = {{numerator}, number_argument(divisor)};
  made.outputs = {quotient};
  builder_.compute(std::move(made));
}

void StepEmitter::add_persistent(ValueId id, std::vector<std::int64_t> shape) {
  static const std::map<graph::ValueRole, program::BufferKind> kKinds = {
      {graph::ValueRole::kInput, program::BufferKind::kInput},
      {graph::ValueRole::kParameter, program::BufferKind::kParameter},
      {graph::ValueRole::kBuffer, program::BufferKind::kModelBuffer},
      {graph::ValueRole::kConstant, program::BufferKind::kConstant}};
  const graph::Value& value = graph_.value(id);
  buffers_[id.index()] = builder_.add_buffer(
      {kKinds.at(value.role), value.dtype, std::move(shape), value.name, BufferId()});
}

void StepEmitter::add_states(ValueId parameter) {
  const bool adam = options_.optimizer.kind != plan::OptimizerKind::kSgd;
  const std::array<std::string_view, 2> names =
      adam ? std::array<std::string_view, 2>{"exp_avg", "exp_avg_sq"}
           : std::array<std::string_view, 2>{"momentum", ""};
  const program::Buffer like = builder_.buffer(buffers_[parameter.index()]);
  for (int s = 0; s < options_.optimizer.states(); ++s) {
    program::Buffer state = like;
    state.kind = program::BufferKind::kState;
    state.name = fmt::format("{}/{}", like.name, names[static_cast<std::size_t>(s)]);
    states_[parameter.index()].push_back(builder_.add_buffer(std::move(state)));
  }
}

BufferId StepEmitter::emit_stop_request() {
  const BufferId stop = builder_.add_temporary(DType::kF32, {1});
  compute("motley::stop_request", {}, {stop}, "stop");
  return stop;
}

void StepEmitter::add_output(std::int64_t index, BufferId value, Updates& updates) {
  const graph::Output& output = graph_.outputs[static_cast<std::size_t>(index)];
  if (output.kind == graph::OutputKind::kLoss) loss_ = value;
  if (output.kind == graph::OutputKind::kUpdate)
    assignments_.emplace_back(buffers_[output.of.index()], value);
  if (output.kind != graph::OutputKind::kGradient) return;
  const std::vector<BufferId>& states = states_[output.of.index()];
  updates.parameters.push_back(buffers_[output.of.index()]);
  updates.gradients.push_back(value);
  if (!states.empty()) updates.state1.push_back(states[0]);
  if (states.size() > 1) updates.state2.push_back(states[1]);
}

void StepEmitter::emit_update(const Updates& updates, const std::string& label) {
  if (updates.parameters.empty()) return;
  const plan::Optimizer& optimizer = options_.optimizer;
  compute("motley::update",
          {{std::string(plan::optimizer_name(optimizer.kind))},
           {buffer_list(updates.parameters)},
           {buffer_list(updates.gradients)},
           {buffer_list(updates.state1)},
           {buffer_list(updates.state2)},
           {optimizer.lr},
           {optimizer.momentum},
           {optimizer.nesterov},
           {optimizer.weight_decay},
           {optimizer.beta1},
           {optimizer.beta2},
           {optimizer.eps}},
          {}, label);
}

void StepEmitter::emit_end(BufferId stop) {
  for (const auto& [target, value] : assignments_)
    compute("motley::assign", {{target}, {value}}, {}, builder_.buffer(target).name);
  if (stop.is_none()) stop = emit_stop_request();
  compute("motley::report", {{loss_}, {stop}}, {}, "report");
}

}  // namespace motley::synth
