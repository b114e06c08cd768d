#include "motley/synth/sharded_values.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "motley/plan/shares.h"
#include "motley/program/parts.h"
#include "motley/synth/conversion.h"

namespace motley::synth {

using graph::Form;
using graph::FormKind;
using graph::Slab;
using program::Argument;
using program::ArgumentList;

ShardedValues::ShardedValues(const graph::Graph& graph, const Sharding& sharding,
                             const ShardedStep& step, std::size_t rank, const LowerOptions& options,
                             program::DeviceProgram start)
    : StepEmitter(graph, options, std::move(start)),
      sharding_(sharding),
      step_(step),
      rank_(rank),
      sizes_(sharding.batch),
      keeper_(static_cast<std::size_t>(
          std::max_element(sharding.shares.begin(), sharding.shares.end()) -
          sharding.shares.begin())) {}

std::vector<std::int64_t> ShardedValues::whole_shape(ValueId id) {
  std::vector<std::int64_t> shape;
  for (const graph::SizeExpr& size : graph_.value(id).shape) shape.push_back(sizes_.integer(size));
  return shape;
}

const std::vector<std::int64_t>& ShardedValues::parts_of(std::int64_t extent) {
  std::vector<std::int64_t>& parts = parts_[extent];
  if (parts.empty()) parts = plan::round_shares(sharding_.shares, extent);
  return parts;
}

std::int64_t ShardedValues::own(std::int64_t extent) { return parts_of(extent)[rank_]; }

std::int64_t ShardedValues::begin(std::int64_t extent) {
  const std::vector<std::int64_t>& parts = parts_of(extent);
  std::int64_t first = 0;
  for (std::size_t r = 0; r < rank_; ++r) first += parts[r];
  return first;
}

std::vector<std::int64_t> ShardedValues::shape_on(std::size_t rank, ValueId id, const Form& form) {
  std::vector<std::int64_t> shape = whole_shape(id);
  if (form.kind == FormKind::kSharded)
    shape[static_cast<std::size_t>(form.dim)] =
        form.outer * parts_of(form.extent)[rank] * form.inner;
  return shape;
}

std::vector<std::int64_t> ShardedValues::local_shape(ValueId id, const Form& form) {
  return shape_on(rank_, id, form);
}

ArgumentList ShardedValues::integers(const std::vector<std::int64_t>& values, std::int64_t times) {
  ArgumentList list;
  for (const std::int64_t value : values) list.push_back({value * times});
  return list;
}

std::int64_t ShardedValues::sum(const std::vector<std::int64_t>& values) {
  std::int64_t total = 0;
  for (const std::int64_t value : values) total += value;
  return total;
}

BufferId ShardedValues::in_form(ValueId value, const Form& form) {
  if (is_same(step_.homes[value.index()], form, step_.alike[value.index()]))
    return buffers_[value.index()];
  if (const auto made = converted_.find({value, form}); made != converted_.end())
    return made->second;
  start_conversion(value, form);
  const std::string label = label_of(value);
  BufferId made;
  if (const auto found = arriving_.find({value, form}); found != arriving_.end()) {
    Arriving& parts = found->second;
    made = join(parts.flat, parts.slab, parts.extents, std::move(parts.shape), label);
    arriving_.erase(found);
  } else if (is_made_of_whole(value, form)) {
    const BufferId whole = in_form(value, graph::kWholeForm);
    made = form.kind == FormKind::kPartial ? keep_once(whole, label)
                                           : take_part(value, whole, form, label);
  } else {
    return converted_.at({value, form});
  }
  converted_[{value, form}] = made;
  return made;
}

BufferId ShardedValues::make(std::string op, ArgumentList arguments, DType dtype,
                             std::vector<std::int64_t> shape, const std::string& label) {
  const BufferId made = builder_.add_temporary(dtype, std::move(shape));
  compute(std::move(op), std::move(arguments), {made}, label);
  return made;
}

BufferId ShardedValues::cut(BufferId from, const Slab& slab,
                            const std::vector<std::int64_t>& extents, const std::string& label) {
  return make("motley::cut", {{from}, {slab.before}, {integers(extents)}, {slab.after}},
              builder_.buffer(from).dtype, {slab.before * sum(extents) * slab.after}, label);
}

BufferId ShardedValues::join(BufferId flat, const Slab& slab,
                             const std::vector<std::int64_t>& extents,
                             std::vector<std::int64_t> shape, const std::string& label) {
  if (slab.before == 1) return unpack(flat, {std::move(shape)}, label).front();
  return make("motley::join", {{flat}, {slab.before}, {integers(extents)}, {slab.after}},
              builder_.buffer(flat).dtype, std::move(shape), label);
}

std::vector<BufferId> ShardedValues::unpack(BufferId flat,
                                            const std::vector<std::vector<std::int64_t>>& shapes,
                                            const std::string& label) {
  const DType dtype = builder_.buffer(flat).dtype;
  std::vector<BufferId> views;
  for (const std::vector<std::int64_t>& shape : shapes)
    views.push_back(builder_.add_temporary(dtype, shape, flat));
  compute("motley::unpack", {{flat}}, views, label);
  return views;
}

BufferId ShardedValues::exchange(std::string op, BufferId from, std::vector<ArgumentList> counts,
                                 std::int64_t elements, const std::string& label) {
  const BufferId made = builder_.add_temporary(builder_.buffer(from).dtype, {elements});
  builder_.exchange(std::move(op), from, std::move(counts), made, label);
  return made;
}

ShardedValues::Arriving ShardedValues::gather(ValueId value, const Form& from,
                                              const std::string& label) {
  const std::vector<std::int64_t>& parts = parts_of(from.extent);
  const Slab slab = slab_of(whole_shape(value), from);
  const BufferId flat = cut(buffers_[value.index()], slab, {own(from.extent)}, label);
  const std::int64_t width = slab.before * slab.after;
  const BufferId all =
      exchange("motley::all_gather", flat, {integers(parts, width)}, width * from.extent, label);
  return {all, slab, parts, whole_shape(value)};
}

BufferId ShardedValues::all_reduce(ValueId value, const std::string& label) {
  if (step_.schedule.in_place[value.index()]) {
    builder_.all_reduce(buffers_[value.index()], label);
    return buffers_[value.index()];
  }
  const BufferId copy =
      make("aten::clone",
           {{buffers_[value.index()]}, {program::KeywordArgument{"memory_format", "contiguous"}}},
           graph_.value(value).dtype, whole_shape(value), label);
  builder_.all_reduce(copy, label);
  return copy;
}

ShardedValues::Arriving ShardedValues::reduce_scatter(ValueId value, const Form& to,
                                                      const std::string& label) {
  const std::vector<std::int64_t>& parts = parts_of(to.extent);
  const Slab slab = slab_of(whole_shape(value), to);
  const std::int64_t width = slab.before * slab.after;
  const BufferId flat = cut(buffers_[value.index()], slab, parts, label);
  const BufferId part = exchange("motley::reduce_scatter", flat, {integers(parts, width)},
                                 width * own(to.extent), label);
  return {part, slab, {own(to.extent)}, local_shape(value, to)};
}

ShardedValues::Arriving ShardedValues::all_to_all(ValueId value, const Form& from, const Form& to,
                                                  const std::string& label) {
  const std::vector<std::int64_t>& sent = parts_of(to.extent);
  const std::vector<std::int64_t>& received = parts_of(from.extent);
  const Slab out = slab_of(local_shape(value, from), to);
  const Slab in = slab_of(local_shape(value, to), from);
  const BufferId flat = cut(buffers_[value.index()], out, sent, label);
  const BufferId got =
      exchange("motley::all_to_all", flat,
               {integers(sent, out.before * out.after), integers(received, in.before * in.after)},
               in.before * in.after * from.extent, label);
  return {got, in, received, local_shape(value, to)};
}

BufferId ShardedValues::take_part(ValueId value, BufferId whole, const Form& to,
                                  const std::string& label) {
  const Slab slab = slab_of(whole_shape(value), to);
  return make("motley::part", {{whole}, {slab.before}, {begin(to.extent)}, {slab.after}},
              graph_.value(value).dtype, local_shape(value, to), label);
}

BufferId ShardedValues::keep_once(BufferId whole, const std::string& label) {
  if (rank_ == keeper_) return whole;
  const Argument none{program::NoneArgument{}};
  const program::Buffer like = builder_.buffer(whole);
  return make("aten::zeros_like", {{whole}, none, none, none, none, none}, like.dtype, like.shape,
              label);
}

std::string ShardedValues::label_of(ValueId value) const {
  const OpId producer = graph_.value(value).producer;
  return producer.is_none() ? graph_.value(value).name : graph_.op(producer).module;
}

bool ShardedValues::is_made_of_whole(ValueId value, const Form& to) const {
  const Form& from = step_.homes[value.index()];
  // Terms that are wanted in several forms are summed once.
  if (from.kind == FormKind::kPartial && to.kind == FormKind::kSharded)
    return step_.wanted[value.index()].size() > 1;
  return find_exchange(from, to).empty();
}

void ShardedValues::start_conversion(ValueId value, const Form& to) {
  const Form& from = step_.homes[value.index()];
  const Converted key{value, to};
  if (is_same(from, to, step_.alike[value.index()]) || converted_.contains(key) ||
      arriving_.contains(key))
    return;
  if (is_made_of_whole(value, to)) return start_conversion(value, graph::kWholeForm);
  const std::string label = label_of(value);
  const std::string_view exchange = find_exchange(from, to);
  if (exchange == program::kAllReduce)
    converted_[key] = sum_of_elements(value) == 0
                          ? buffers_[value.index()]  // an empty tensor is its own sum
                          : all_reduce(value, label);
  else if (exchange == program::kReduceScatter)
    arriving_[key] = reduce_scatter(value, to, label);
  else if (exchange == program::kAllGather)
    arriving_[key] = gather(value, from, label);
  else
    arriving_[key] = all_to_all(value, from, to, label);
}

std::int64_t ShardedValues::sum_of_elements(ValueId value) {
  std::int64_t elements = 1;
  for (const std::int64_t size : whole_shape(value)) elements *= size;
  return elements;
}

}  // namespace motley::synth
