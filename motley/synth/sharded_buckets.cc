// Values of one dtype that travel together: packed into one flat buffer, exchanged, unpacked.

#include <utility>

#include "motley/synth/sharded_values.h"

namespace motley::synth {

using graph::Form;
using program::ArgumentList;

namespace {

/// Is a part of a tensor in this form a slice of one of its dimensions?
bool is_slice(const Form& form) { return form.outer == 1; }

}  // namespace

Form ShardedValues::form_after(const Bucket& bucket, const BucketItem& item) const {
  return bucket.exchange == Exchange::kReduceScatter
             ? step_.outputs[static_cast<std::size_t>(item.output)]
             : graph::kWholeForm;
}

BufferId ShardedValues::pack(DType dtype, const std::vector<BufferId>& values,
                             const std::string& label) {
  std::int64_t elements = 0;
  for (const BufferId value : values) elements += builder_.buffer(value).elements();
  return make("motley::pack", {{buffer_list(values)}}, dtype, {elements}, label);
}

/// A part as slices make it: in the tensor's own shape, or as [before, part, after].
std::vector<std::int64_t> ShardedValues::part_shape(std::size_t rank, ValueId value,
                                                    const Form& form) {
  if (is_slice(form)) return shape_on(rank, value, form);
  const graph::Slab slab = slab_of(whole_shape(value), form);
  return {slab.before, parts_of(form.extent)[rank], slab.after};
}

std::vector<BufferId> ShardedValues::views_of_parts(ValueId value, const Form& form,
                                                    const std::string& label) {
  BufferId from = buffers_[value.index()];
  const DType dtype = builder_.buffer(from).dtype;
  std::int64_t dim = form.dim, width = form.inner;
  if (!is_slice(form)) {
    const graph::Slab slab = slab_of(whole_shape(value), form);
    const std::vector<std::int64_t> shape{slab.before, slab.extent, slab.after};
    const BufferId seen = builder_.add_temporary(dtype, shape, from);
    compute("aten::view", {{from}, {integers(shape)}}, {seen}, label);
    from = seen;
    dim = width = 1;
  }
  std::vector<BufferId> parts;
  for (std::size_t r = 0; r < sharding_.devices.size(); ++r)
    parts.push_back(builder_.add_temporary(dtype, part_shape(r, value, form), from));
  program::Instruction split;
  split.op = "aten::split_with_sizes";
  split.arguments = {{from}, {integers(parts_of(form.extent), width)}, {dim}};
  split.outputs = parts;
  split.returns_list = true;
  split.label = label;
  builder_.compute(std::move(split));
  return parts;
}

BufferId ShardedValues::whole_of_parts(ValueId value, const std::vector<BufferId>& parts,
                                       const std::string& label) {
  const Form& form = step_.homes[value.index()];
  const DType dtype = graph_.value(value).dtype;
  const std::vector<std::int64_t> shape = whole_shape(value);
  if (is_slice(form))
    return make("aten::cat", {{buffer_list(parts)}, {std::int64_t{form.dim}}}, dtype, shape, label);
  const graph::Slab slab = slab_of(shape, form);
  const BufferId joined = make("aten::cat", {{buffer_list(parts)}, {std::int64_t{1}}}, dtype,
                               {slab.before, slab.extent, slab.after}, label);
  const BufferId whole = builder_.add_temporary(dtype, shape, joined);
  compute("aten::view", {{joined}, {integers(shape)}}, {whole}, label);
  return whole;
}

ArgumentList ShardedValues::counts_of(const Bucket& bucket) {
  std::vector<std::int64_t> counts(sharding_.devices.size(), 0);
  for (const BucketItem& item : bucket.items) {
    const Form form = bucket.exchange == Exchange::kReduceScatter ? form_after(bucket, item)
                                                                  : step_.homes[item.value.index()];
    const graph::Slab slab = slab_of(whole_shape(item.value), form);
    for (std::size_t r = 0; r < counts.size(); ++r)
      counts[r] += slab.before * parts_of(form.extent)[r] * slab.after;
  }
  return integers(counts);
}

BufferId ShardedValues::start_exchange(const Bucket& bucket, const std::string& label) {
  std::vector<std::vector<BufferId>> parts(1);  // what is packed one after the other
  if (bucket.exchange == Exchange::kReduceScatter) parts.resize(sharding_.devices.size());
  for (const BucketItem& item : bucket.items) {
    if (item.output == BucketItem::kStop) {
      parts[0].push_back(emit_stop_request());
    } else if (bucket.exchange == Exchange::kReduceScatter) {
      const std::vector<BufferId> views =
          views_of_parts(item.value, form_after(bucket, item), label);
      for (std::size_t r = 0; r < views.size(); ++r) parts[r].push_back(views[r]);
    } else {
      parts[0].push_back(buffers_[item.value.index()]);
    }
  }
  std::vector<BufferId> packed;
  for (const std::vector<BufferId>& part : parts)
    packed.insert(packed.end(), part.begin(), part.end());
  const BufferId flat = pack(bucket.dtype, packed, label);
  if (bucket.exchange == Exchange::kAllReduce) {
    builder_.all_reduce(flat, label);
    return flat;
  }
  const ArgumentList counts = counts_of(bucket);
  if (bucket.exchange == Exchange::kReduceScatter)
    return exchange("motley::reduce_scatter", flat, {counts},
                    std::get<std::int64_t>(counts[rank_].value), label);
  std::int64_t elements = 0;
  for (const program::Argument& count : counts) elements += std::get<std::int64_t>(count.value);
  return exchange("motley::all_gather", flat, {counts}, elements, label);
}

std::vector<BufferId> ShardedValues::finish_exchange(const Bucket& bucket, BufferId flat,
                                                     const std::string& label) {
  std::vector<std::vector<std::int64_t>> shapes;
  if (bucket.exchange != Exchange::kAllGather) {
    for (const BucketItem& item : bucket.items)
      shapes.push_back(item.output == BucketItem::kStop
                           ? std::vector<std::int64_t>{1}
                           : local_shape(item.value, form_after(bucket, item)));
    return unpack(flat, shapes, label);
  }
  const std::size_t items = bucket.items.size(), ranks = sharding_.devices.size();
  for (std::size_t r = 0; r < ranks; ++r)
    for (const BucketItem& item : bucket.items)
      shapes.push_back(part_shape(r, item.value, step_.homes[item.value.index()]));
  const std::vector<BufferId> views = unpack(flat, shapes, label);
  std::vector<BufferId> wholes;
  for (std::size_t i = 0; i < items; ++i) {
    std::vector<BufferId> parts;
    for (std::size_t r = 0; r < ranks; ++r) parts.push_back(views[r * items + i]);
    wholes.push_back(whole_of_parts(bucket.items[i].value, parts, label));
  }
  return wholes;
}

}  // namespace motley::synth
