#include "motley/synth/ranks/update.h"

#include <fmt/format.h>

#include <algorithm>

#include "motley/program/parts.h"
#include "motley/program/state_names.h"

namespace motley::synth {
namespace {

using graph::Form;
using graph::FormKind;
using program::BufferKind;

/// Returns the arguments of an optimizer's instructions besides rate and decay.
Arguments optimizer_constants(const plan::Optimizer& optimizer) {
  using Kind = plan::OptimizerKind;
  const double nesterov = optimizer.nesterov ? 1 : 0;
  switch (optimizer.kind) {
    case Kind::kSgd:
    case Kind::kMuon:
      return {{optimizer.momentum}, {nesterov}};
    case Kind::kAdam:
    case Kind::kAdamW:
    case Kind::kLamb:
      return {{optimizer.beta1}, {optimizer.beta2}, {optimizer.eps}};
    case Kind::kRmsprop:
      return {{optimizer.beta2}, {optimizer.eps}, {optimizer.momentum}};
    case Kind::kLion:
      return {{optimizer.beta1}, {optimizer.beta2}};
    case Kind::kAdagrad:
    case Kind::kAdafactor:
      return {{optimizer.eps}};
  }
  return {};
}

/// Does a step depend on norms or on other elements, so that a direction is computed first?
bool has_direction(plan::OptimizerKind kind) {
  return plan::needs_whole(kind) || kind == plan::OptimizerKind::kLamb;
}

/// Returns the shape of the own rows of a state or parameter with this many dimensions.
Shape piece_shape(std::size_t dims, const Update::OwnRows& rows) {
  Shape shape(dims, 1);
  shape.back() = rows.elements();
  return shape;
}

}  // namespace

bool Update::may_share(ValueId parameter) const {
  const graph::Value& value = rank_.graph().value(parameter);
  return !has_direction(plan::optimizer_of(recipe_, value).kind) && !value.shape.empty();
}

const Update::OwnRows* Update::own_rows(ValueId parameter) const {
  const auto own = own_.find(parameter);
  return own == own_.end() || own->second.are_all() ? nullptr : &own->second;
}

BufferId Update::updated(ValueId parameter) const {
  const BufferId piece = kept_[parameter.index()].piece;
  return piece.is_none() ? rank_.value(parameter) : piece;
}

void Update::take_own_rows(ValueId parameter, const std::string& label) {
  const OwnRows* own = own_rows(parameter);
  if (own == nullptr) return;
  Kept& kept = kept_[parameter.index()];
  const BufferId whole = rank_.value(parameter);
  const std::size_t dims = rank_.builder().buffer(whole).shape.size();
  kept.piece = rank_.builder().part(whole, own->slab, own->begin - own->here_begin,
                                    piece_shape(dims, *own), label);
  (kept.copy.is_none() ? kept.parameter : kept.copy) = kept.piece;
}

void Update::begin() {
  const graph::Graph& graph = rank_.graph();
  kept_.resize(graph.values.size());
  for (const graph::Output& output : graph.outputs)
    if (output.kind == graph::OutputKind::kGradient) kept_[output.of.index()] = keep(output.of);
  if (recipe_.loss_scale)
    scaling_ = rank_.builder().add_buffer(
        {BufferKind::kState, DType::kF32, {3}, std::string(program::kLossScaleState), BufferId()});
}

BufferId Update::add_state(ValueId parameter, std::string_view suffix, DType dtype,
                           plan::StateSpec::Shape shape) {
  using SpecShape = plan::StateSpec::Shape;
  program::Buffer state = rank_.builder().buffer(rank_.value(parameter));
  state.kind = BufferKind::kState;
  state.dtype = dtype;
  state.name += suffix;
  if (const OwnRows* own = own_rows(parameter)) {
    state.shape = piece_shape(state.shape.size(), *own);
    state.part = program::Part{own->slab.before, own->begin, own->slab.extent, own->slab.after};
    return rank_.builder().add_buffer(std::move(state));
  }
  if (shape != SpecShape::kParameter) {
    state.part.reset();
    state.shape = rank_.whole_shape(parameter);
    if (shape != SpecShape::kWhole)
      state.shape[state.shape.size() - (shape == SpecShape::kRows ? 1 : 2)] = 1;
  }
  return rank_.builder().add_buffer(std::move(state));
}

Update::Kept Update::keep(ValueId parameter) {
  using SpecShape = plan::StateSpec::Shape;
  const graph::Value& value = rank_.graph().value(parameter);
  const bool has_master = plan::has_master(recipe_, value);
  const DType dtype = has_master ? DType::kF32 : value.dtype;
  Kept kept;
  kept.parameter = rank_.value(parameter);
  if (const OwnRows* own = own_rows(parameter); own != nullptr && own->count == 0) return kept;
  kept.is_part = rank_.step().home(parameter).kind == FormKind::kSharded;
  if (has_master) {
    kept.copy = kept.parameter;
    kept.parameter = add_state(parameter, program::kMasterSuffix, dtype, SpecShape::kParameter);
  }
  kept.optimizer = plan::optimizer_of(recipe_, value);
  const auto states = plan::find_states(kept.optimizer, value.shape.size());
  for (std::size_t s = 0; s < states.size(); ++s)
    (s == 0 ? kept.state1 : kept.state2) =
        add_state(parameter, fmt::format("/{}", states[s].name), dtype, states[s].shape);
  if (recipe_.average)
    kept.average = add_state(parameter, program::kAverageSuffix, dtype, SpecShape::kParameter);
  return kept;
}

BufferId Update::make_tangent(DType dtype) {
  Arguments arguments;
  if (recipe_.loss_scale) arguments = {{scaling_}, {recipe_.loss_scale->initial}};
  return rank_.builder().make("motley::tangent", std::move(arguments), dtype, {}, "tangent");
}

void Update::write(const std::string& label) {
  std::vector<Gradient> gradients = std::exchange(gradients_, {});
  if (gradients.empty()) return;
  if (recipe_.needs_factor())
    waiting_.emplace_back(label, std::move(gradients));
  else
    write_updates(gradients, label);
}

void Update::finish() {
  if (waiting_.empty()) return;
  write_factor(sum_own_squares());
  write_waiting();
}

void Update::finish(BufferId squares) {
  if (waiting_.empty() && !recipe_.needs_factor()) return;
  write_factor({squares});
  write_waiting();
}

void Update::finish(const Update& other) {
  factor_ = other.factor_;
  norm_ = other.norm_;
  write_waiting();
}

void Update::write_waiting() {
  for (const auto& [label, gradients] : waiting_) write_updates(gradients, label);
}

/// Returns the squared norm of each tensor, over all devices if they have parts.
BufferId Update::sum_squares(const std::vector<BufferId>& tensors, Extent extent,
                             const std::string& label) {
  const auto count = static_cast<std::int64_t>(tensors.size());
  const BufferId sums = rank_.builder().make("motley::square_sums", {{buffer_list(tensors)}},
                                             DType::kF64, {count}, label);
  if (extent == Extent::kParts) rank_.builder().all_reduce(sums, label);
  return extent == Extent::kWhole && rank_.step().is_portable() ? rank_.take_keepers(sums, label)
                                                                : sums;
}

std::vector<BufferId> Update::sum_own_squares() {
  const std::string label = "gradient norm";
  std::vector<BufferId> wholes, parts, sums;
  for (const auto& [bucket, gradients] : waiting_)
    for (const Gradient& each : gradients)
      (kept_[each.parameter.index()].is_part ? parts : wholes).push_back(each.gradient);
  if (!wholes.empty()) sums.push_back(sum_squares(wholes, Extent::kWhole, label));
  if (!parts.empty()) sums.push_back(sum_squares(parts, Extent::kParts, label));
  return sums;
}

void Update::write_factor(const std::vector<BufferId>& squares) {
  const std::string label = "gradient norm";
  ProgramBuilder& builder = rank_.builder();
  factor_ = builder.add_temporary(DType::kF64, {1});
  norm_ = builder.add_temporary(DType::kF64, {1});
  const plan::LossScale scale = recipe_.loss_scale.value_or(plan::LossScale());
  builder.compute("motley::gradient_factor",
                  {buffer_or_none(scaling_),
                   {buffer_list(squares)},
                   recipe_.clip_norm ? program::Argument{*recipe_.clip_norm} : none(),
                   {scale.growth},
                   {scale.backoff},
                   {scale.interval},
                   {scale.initial}},
                  {factor_, norm_}, label);
}

std::vector<Update::Batch> Update::make_batches(const std::vector<Gradient>& gradients) const {
  std::vector<Batch> batches;
  for (const Gradient& each : gradients) {
    const Kept& kept = kept_[each.parameter.index()];
    const bool is_part = kept.is_part && has_direction(kept.optimizer.kind);
    auto batch = std::find_if(batches.begin(), batches.end(), [&](const Batch& other) {
      return other.optimizer == kept.optimizer && other.is_part == is_part &&
             other.state2.empty() == kept.state2.is_none() &&
             rank_.builder().buffer(other.parameters.front()).dtype ==
                 rank_.builder().buffer(kept.parameter).dtype;
    });
    if (batch == batches.end())
      batch = batches.insert(batches.end(), {kept.optimizer, is_part, {}, {}, {}, {}, {}});
    batch->values.push_back(each.parameter);
    batch->parameters.push_back(kept.parameter);
    batch->gradients.push_back(each.gradient);
    if (!kept.state1.is_none()) batch->state1.push_back(kept.state1);
    if (!kept.state2.is_none()) batch->state2.push_back(kept.state2);
  }
  return batches;
}

void Update::write_updates(const std::vector<Gradient>& gradients, const std::string& label) {
  for (const Gradient& each : gradients) take_own_rows(each.parameter, label);
  for (const Batch& batch : make_batches(gradients)) write_batch(batch, label);
  write_copies(gradients, label);
}

void Update::write_batch(const Batch& batch, const std::string& label) {
  ProgramBuilder& builder = rank_.builder();
  const plan::Optimizer& optimizer = batch.optimizer;
  std::vector<BufferId> gradients = batch.gradients;
  if (batch.is_part && optimizer.kind == plan::OptimizerKind::kAdafactor)
    gather_whole(batch, gradients, label);
  const Arguments arguments = {{std::string(plan::optimizer_name(optimizer.kind))},
                               {buffer_list(batch.parameters)},
                               {buffer_list(gradients)},
                               {buffer_list(batch.state1)},
                               {buffer_list(batch.state2)},
                               buffer_or_none(factor_),
                               buffer_or_none(scaling_),
                               recipe_.clip_value ? program::Argument{*recipe_.clip_value} : none(),
                               {optimizer.lr},
                               {optimizer.weight_decay},
                               {optimizer_constants(optimizer)}};
  if (!has_direction(optimizer.kind)) {
    // Others may have a parameter of a part of a larger step, too.
    const bool is_portable =
        rank_.step().is_portable() ||
        (rank_.step().part != nullptr && rank_.step().options.updates == plan::Updates::kPortable);
    builder.compute(is_portable ? "motley::update.portable" : "motley::update", arguments, {},
                    label);
    return;
  }
  std::vector<BufferId> directions;
  for (std::size_t i = 0; i < gradients.size(); ++i)
    directions.push_back(builder.add_temporary(builder.buffer(batch.parameters[i]).dtype,
                                               builder.buffer(gradients[i]).shape));
  builder.compute("motley::direction", arguments, directions, label);
  if (rank_.step().is_portable() && optimizer.kind == plan::OptimizerKind::kAdafactor)
    share_states(batch, directions, label);
  apply_directions(batch, std::move(directions), label);
}

void Update::apply_directions(const Batch& batch, std::vector<BufferId> directions,
                              const std::string& label) {
  using Kind = plan::OptimizerKind;
  ProgramBuilder& builder = rank_.builder();
  const Kind kind = batch.optimizer.kind;
  if (kind == Kind::kMuon) {
    if (batch.is_part) gather_whole(batch, directions, label);
    const bool is_shared = rank_.step().is_portable() && !batch.is_part;
    for (BufferId& each : directions) {
      const program::Buffer whole = builder.buffer(each);
      if (is_shared && !rank_.is_keeper())
        each = rank_.keep_once(each, label);
      else
        each = builder.make("motley::orthogonalize", {{each}}, whole.dtype, whole.shape, label);
    }
    if (is_shared) sum_together(directions, label);
  }
  if (batch.is_part && plan::needs_whole(kind)) take_parts(batch, directions, label);
  Arguments extents;  // of whole parameters: rows and columns of matrices, else 1 and elements
  for (const ValueId value : batch.values) {
    const Shape shape = rank_.whole_shape(value);
    const std::int64_t rows = shape.size() == 2 ? shape[0] : 1;
    extents.push_back({rows});
    extents.push_back({rank_.whole_elements(value) / std::max<std::int64_t>(rows, 1)});
  }
  const Extent extent = batch.is_part ? Extent::kParts : Extent::kWhole;
  const BufferId of_parameters =
      kind == Kind::kMuon ? BufferId() : sum_squares(batch.parameters, extent, label);
  const BufferId of_directions =
      kind == Kind::kLamb ? sum_squares(directions, extent, label) : BufferId();
  builder.compute("motley::apply",
                  {{std::string(plan::optimizer_name(kind))},
                   {buffer_list(batch.parameters)},
                   {buffer_list(directions)},
                   {std::move(extents)},
                   buffer_or_none(of_parameters),
                   buffer_or_none(of_directions),
                   buffer_or_none(factor_),
                   buffer_or_none(scaling_),
                   {batch.optimizer.lr},
                   {batch.optimizer.weight_decay},
                   {optimizer_constants(batch.optimizer)}},
                  {}, label);
}

void Update::sum_together(std::vector<BufferId>& terms, const std::string& label) {
  ProgramBuilder& builder = rank_.builder();
  std::vector<Shape> shapes;
  for (const BufferId each : terms) shapes.push_back(builder.buffer(each).shape);
  const BufferId flat = builder.pack(terms, builder.buffer(terms.front()).dtype, label);
  builder.all_reduce(flat, label);
  terms = builder.unpack(flat, shapes, label);
}

/// Replaces adafactor's states, and directions that are not sharded anyway, by those of one device:
/// its means depend on the order of summation.
void Update::share_states(const Batch& batch, std::vector<BufferId>& directions,
                          const std::string& label) {
  std::vector<BufferId> states = batch.state1;
  states.insert(states.end(), batch.state2.begin(), batch.state2.end());
  std::vector<BufferId> shared = states;
  if (!batch.is_part) shared.insert(shared.end(), directions.begin(), directions.end());
  for (BufferId& each : shared) each = rank_.keep_once(each, label);
  sum_together(shared, label);
  const auto end_of_states = shared.begin() + static_cast<std::ptrdiff_t>(states.size());
  rank_.builder().compute("motley::assign",
                          {{buffer_list(states)}, {buffer_list({shared.begin(), end_of_states})}},
                          {}, label);
  std::copy(end_of_states, shared.end(), directions.begin());
}

/// Gathers parts of tensors like the batch's parameters on all devices.
void Update::gather_whole(const Batch& batch, std::vector<BufferId>& parts,
                          const std::string& label) {
  ProgramBuilder& builder = rank_.builder();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Form& form = rank_.step().home(batch.values[i]);
    const Shape shape = rank_.whole_shape(batch.values[i]);
    const graph::Slab slab = graph::slab_of(shape, form);
    const Shape& extents = rank_.parts_of(form.extent);
    const std::int64_t width = slab.before * slab.after;
    const BufferId packed = builder.pack({parts[i]}, builder.buffer(parts[i]).dtype, label);
    const BufferId flat = builder.exchange(program::kAllGather, packed, {integers(extents, width)},
                                           width * form.extent, label);
    parts[i] = builder.join(flat, slab, extents, shape, label);
  }
}

void Update::take_parts(const Batch& batch, std::vector<BufferId>& wholes,
                        const std::string& label) {
  for (std::size_t i = 0; i < wholes.size(); ++i)
    wholes[i] =
        rank_.take_part(batch.values[i], wholes[i], rank_.step().home(batch.values[i]), label);
}

void Update::write_copies(const std::vector<Gradient>& gradients, const std::string& label) {
  ProgramBuilder& builder = rank_.builder();
  std::vector<BufferId> copies, masters, averages, averaged;
  for (const Gradient& each : gradients) {
    const Kept& kept = kept_[each.parameter.index()];
    if (!kept.copy.is_none()) {
      copies.push_back(kept.copy);
      masters.push_back(kept.parameter);
    }
    if (!kept.average.is_none()) {
      averages.push_back(kept.average);
      averaged.push_back(kept.parameter);
    }
  }
  if (!copies.empty())
    builder.compute("motley::assign", {{buffer_list(copies)}, {buffer_list(masters)}}, {}, label);
  if (!averages.empty())
    builder.compute("motley::average",
                    {{buffer_list(averages)}, {buffer_list(averaged)}, {*recipe_.average}}, {},
                    label);
}

}  // namespace motley::synth
