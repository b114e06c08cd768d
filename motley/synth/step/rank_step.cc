#include "motley/synth/step/rank_step.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string_view>

#include "motley/base/check.h"
#include "motley/plan/shares.h"
#include "motley/program/parts.h"
#include "motley/synth/step/conversion.h"

namespace motley::synth {

using graph::Form;
using graph::FormKind;
using graph::Slab;

RankStep::RankStep(const ShardedStep& step, Place& place, ProgramBuilder& builder, GroupId group)
    : step_(step),
      place_(place),
      sizes_{{"batch", step.sharding.batch}},
      builder_(builder),
      group_(group),
      values_(step.graph.values.size()) {}

graph::Number RankStep::evaluate(const graph::SizeExpr& expr) {
  if (expr.is_constant()) return expr.evaluate(sizes_);
  const auto [entry, is_new] = numbers_.try_emplace(expr.text());
  if (is_new) entry->second = expr.evaluate(sizes_);
  return entry->second;
}

std::int64_t RankStep::size(const graph::SizeExpr& expr) {
  const graph::Number number = evaluate(expr);
  const auto* value = std::get_if<std::int64_t>(&number);
  MOTLEY_CHECK(value != nullptr);
  return *value;
}

Shape RankStep::whole_shape(ValueId id) {
  Shape shape;
  for (const graph::SizeExpr& each : graph().value(id).shape) shape.push_back(size(each));
  return shape;
}

std::int64_t RankStep::whole_elements(ValueId id) {
  const Shape shape = whole_shape(id);
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

Range RankStep::own_range(const Form& form) {
  return {begin(form.extent) * form.inner, own(form.extent) * form.inner};
}

Shape RankStep::local_shape(ValueId id, const Form& form) {
  if (form.kind == FormKind::kSharded) (void)own(form.extent);
  return shape_on(place_.rank(), id, form);
}

Shape RankStep::shape_on(std::size_t rank, ValueId id, const Form& form) {
  Shape shape = whole_shape(id);
  if (form.kind == FormKind::kSharded)
    shape[static_cast<std::size_t>(form.dim)] =
        form.outer * parts_of(form.extent)[rank] * form.inner;
  return shape;
}

BufferId RankStep::in_form(ValueId id, const Form& form) {
  if (step_.is_home(id, form)) return value(id);
  if (const auto made = converted_.find({id, form}); made != converted_.end()) return made->second;
  start_conversion(id, form);
  const std::string label = label_of(id);
  BufferId made;
  if (const auto found = arriving_.find({id, form}); found != arriving_.end()) {
    Arriving& parts = found->second;
    made = builder().join(parts.flat, parts.slab, parts.extents, std::move(parts.shape), label);
    arriving_.erase(found);
  } else if (is_made_of_whole(id, form)) {
    const BufferId whole = in_form(id, graph::kWholeForm);
    made = form.kind == FormKind::kPartial ? keep_once(whole, label)
                                           : take_part(id, whole, form, label);
  } else {
    return converted_.at({id, form});
  }
  converted_[{id, form}] = made;
  return made;
}

RankStep::Arriving RankStep::gather(ValueId id, const Form& from, const std::string& label) {
  const Shape& parts = parts_of(from.extent);
  const Slab slab = slab_of(whole_shape(id), from);
  const BufferId flat = builder().cut(value(id), slab, {own(from.extent)}, label);
  const std::int64_t width = slab.before * slab.after;
  const BufferId all = builder().exchange(program::kAllGather, flat, {integers(parts, width)},
                                          width * from.extent, label);
  return {all, slab, parts, whole_shape(id)};
}

BufferId RankStep::all_reduce(ValueId id, const std::string& label) {
  if (step_.schedule.in_place[id.index()]) {
    builder().all_reduce(value(id), label);
    return value(id);
  }
  const BufferId copy =
      builder().make("aten::clone", {{value(id)}, keyword("memory_format", "contiguous")},
                     graph().value(id).dtype, whole_shape(id), label);
  builder().all_reduce(copy, label);
  return copy;
}

RankStep::Arriving RankStep::reduce_scatter(ValueId id, const Form& to, const std::string& label) {
  const Shape& parts = parts_of(to.extent);
  const Slab slab = slab_of(whole_shape(id), to);
  const std::int64_t width = slab.before * slab.after;
  const BufferId flat = builder().cut(value(id), slab, parts, label);
  const BufferId part = builder().exchange(program::kReduceScatter, flat, {integers(parts, width)},
                                           width * own(to.extent), label);
  return {part, slab, {own(to.extent)}, local_shape(id, to)};
}

RankStep::Arriving RankStep::all_to_all(ValueId id, const Form& from, const Form& to,
                                        const std::string& label) {
  const Shape& sent = parts_of(to.extent);
  const Shape& received = parts_of(from.extent);
  const Slab out = slab_of(local_shape(id, from), to);
  const Slab in = slab_of(local_shape(id, to), from);
  const BufferId flat = builder().cut(value(id), out, sent, label);
  const BufferId got = builder().exchange(
      program::kAllToAll, flat,
      {integers(sent, out.before * out.after), integers(received, in.before * in.after)},
      in.before * in.after * from.extent, label);
  return {got, in, received, local_shape(id, to)};
}

BufferId RankStep::take_part(ValueId id, BufferId whole, const Form& to, const std::string& label) {
  return builder().part(whole, slab_of(whole_shape(id), to), begin(to.extent), local_shape(id, to),
                        label);
}

BufferId RankStep::keep_once(BufferId whole, const std::string& label) {
  if (place_.is_keeper()) return whole;
  const program::Buffer like = builder().buffer(whole);
  return builder().make("aten::zeros_like", {{whole}, none(), none(), none(), none(), none()},
                        like.dtype, like.shape, label);
}

BufferId RankStep::take_keepers(BufferId whole, const std::string& label) {
  const BufferId once = keep_once(whole, label);
  builder().all_reduce(once, label);
  return once;
}

std::string RankStep::label_of(ValueId id) const {
  const OpId producer = graph().value(id).producer;
  return producer.is_none() ? graph().value(id).name : graph().op(producer).module;
}

bool RankStep::is_made_of_whole(ValueId id, const Form& to) const {
  const Form& from = step_.home(id);
  // Terms that are needed in several forms are summed once.
  if (from.kind == FormKind::kPartial && to.kind == FormKind::kSharded)
    return step_.wanted[id.index()].size() > 1;
  return find_exchange(from, to).empty();
}

void RankStep::start_conversion(ValueId id, const Form& to) {
  const Form& from = step_.home(id);
  const Converted key{id, to};
  if (step_.is_home(id, to) || converted_.contains(key) || arriving_.contains(key)) return;
  if (is_made_of_whole(id, to)) return start_conversion(id, graph::kWholeForm);
  const std::string label = label_of(id);
  const std::string_view exchange = find_exchange(from, to);
  if (exchange == program::kAllReduce)
    converted_[key] = whole_elements(id) == 0 ? value(id)  // an empty tensor is its own sum
                                              : all_reduce(id, label);
  else if (exchange == program::kReduceScatter)
    arriving_[key] = reduce_scatter(id, to, label);
  else if (exchange == program::kAllGather)
    arriving_[key] = gather(id, from, label);
  else
    arriving_[key] = all_to_all(id, from, to, label);
}

}  // namespace motley::synth
