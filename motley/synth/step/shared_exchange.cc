#include "motley/synth/step/shared_exchange.h"

#include <numeric>
#include <utility>

#include "motley/program/parts.h"

namespace motley::synth {

using graph::Form;

namespace {

/// Is a part in this form a slice of one dimension?
bool is_slice(const Form& form) { return form.outer == 1; }

/// Returns the sharded form of an item, before or after the exchange.
const Form& form_in_parts(const ShardedStep& step, const Bucket& bucket, const BucketItem& item) {
  return bucket.exchange == Exchange::kReduceScatter
             ? step.outputs[static_cast<std::size_t>(item.output)]
             : step.home(item.value);
}

/// Returns the shape of a part: the tensor's own rank for slices, or [before, part, after].
Shape part_shape(RankStep& rank, std::size_t of, ValueId value, const Form& form) {
  if (is_slice(form)) return rank.shape_on(of, value, form);
  const graph::Slab slab = slab_of(rank.whole_shape(value), form);
  return {slab.before, rank.parts_of(form.extent)[of], slab.after};
}

/// Returns views of a whole value's parts, by rank.
std::vector<BufferId> views_of_parts(RankStep& rank, ValueId value, const Form& form,
                                     const std::string& label) {
  ProgramBuilder& builder = rank.builder();
  BufferId from = rank.value(value);
  const DType dtype = builder.buffer(from).dtype;
  std::int64_t dim = form.dim, width = form.inner;
  if (!is_slice(form)) {
    const graph::Slab slab = slab_of(rank.whole_shape(value), form);
    from = builder.view(from, {slab.before, slab.extent, slab.after}, label);
    dim = width = 1;
  }
  program::Instruction split;
  for (std::size_t r = 0; r < rank.ranks(); ++r)
    split.outputs.push_back(builder.add_temporary(dtype, part_shape(rank, r, value, form), from));
  split.op = "aten::split_with_sizes";
  split.arguments = {{from}, {integers(rank.parts_of(form.extent), width)}, {dim}};
  split.returns_list = true;
  split.label = label;
  const std::vector<BufferId> parts = split.outputs;
  builder.compute(std::move(split));
  return parts;
}

BufferId whole_of_parts(RankStep& rank, ValueId value, const std::vector<BufferId>& parts,
                        const std::string& label) {
  ProgramBuilder& builder = rank.builder();
  const Form& form = rank.step().home(value);
  const DType dtype = rank.graph().value(value).dtype;
  const Shape shape = rank.whole_shape(value);
  const std::int64_t dim = is_slice(form) ? form.dim : 1;
  const graph::Slab slab = slab_of(shape, form);
  const BufferId joined =
      builder.make("aten::cat", {{buffer_list(parts)}, {dim}}, dtype,
                   is_slice(form) ? shape : Shape{slab.before, slab.extent, slab.after}, label);
  return is_slice(form) ? joined : builder.view(joined, shape, label);
}

/// Elements of all items' parts, by rank and on this rank.
struct PartCounts {
  Shape by_rank;
  std::int64_t here = 0;
};

PartCounts count_parts(RankStep& rank, const Bucket& bucket) {
  PartCounts found{Shape(rank.ranks(), 0)};
  auto& [counts, here] = found;
  for (const BucketItem& item : bucket.items) {
    const Form& form = form_in_parts(rank.step(), bucket, item);
    const graph::Slab slab = slab_of(rank.whole_shape(item.value), form);
    here += slab.before * rank.own(form.extent) * slab.after;
    for (std::size_t r = 0; r < counts.size(); ++r)
      counts[r] += slab.before * rank.parts_of(form.extent)[r] * slab.after;
  }
  return found;
}

/// Packs the local items; a reduce-scatter's by receiving rank.
BufferId pack(RankStep& rank, const Bucket& bucket, const std::string& label) {
  std::vector<std::vector<BufferId>> parts(
      bucket.exchange == Exchange::kReduceScatter ? rank.ranks() : 1);
  for (const BucketItem& item : bucket.items) {
    if (item.output == BucketItem::kStop) {
      parts[0].push_back(request_stop(rank));
    } else if (bucket.exchange == Exchange::kReduceScatter) {
      const std::vector<BufferId> views =
          views_of_parts(rank, item.value, form_in_parts(rank.step(), bucket, item), label);
      for (std::size_t r = 0; r < views.size(); ++r) parts[r].push_back(views[r]);
    } else {
      const BufferId value = rank.value(item.value);
      const bool is_whole = rank.step().home(item.value) == graph::kWholeForm;
      parts[0].push_back(is_whole ? rank.keep_once(value, label) : value);
    }
  }
  std::vector<BufferId> packed;
  for (const std::vector<BufferId>& part : parts)
    packed.insert(packed.end(), part.begin(), part.end());
  return rank.builder().pack(packed, bucket.dtype, label);
}

}  // namespace

BufferId start_exchange(RankStep& rank, const Bucket& bucket, const std::string& label) {
  ProgramBuilder& builder = rank.builder();
  const BufferId flat = pack(rank, bucket, label);
  if (bucket.exchange == Exchange::kAllReduce) {
    builder.all_reduce(flat, label);
    return flat;
  }
  const auto [counts, here] = count_parts(rank, bucket);
  if (bucket.exchange == Exchange::kReduceScatter)
    return builder.exchange(program::kReduceScatter, flat, {integers(counts)}, here, label);
  return builder.exchange(program::kAllGather, flat, {integers(counts)},
                          std::accumulate(counts.begin(), counts.end(), std::int64_t{0}), label);
}

std::vector<BufferId> finish_exchange(RankStep& rank, const Bucket& bucket, BufferId flat,
                                      const std::string& label) {
  std::vector<Shape> shapes;
  if (bucket.exchange != Exchange::kAllGather) {
    const bool is_cut = bucket.exchange == Exchange::kReduceScatter;
    for (const BucketItem& item : bucket.items)
      shapes.push_back(item.output == BucketItem::kStop ? Shape{1}
                       : is_cut
                           ? rank.local_shape(item.value, form_in_parts(rank.step(), bucket, item))
                           : rank.whole_shape(item.value));
    return rank.builder().unpack(flat, shapes, label);
  }
  const std::size_t items = bucket.items.size();
  for (std::size_t r = 0; r < rank.ranks(); ++r)
    for (const BucketItem& item : bucket.items)
      shapes.push_back(part_shape(rank, r, item.value, rank.step().home(item.value)));
  const std::vector<BufferId> views = rank.builder().unpack(flat, shapes, label);
  std::vector<BufferId> wholes;
  for (std::size_t i = 0; i < items; ++i) {
    std::vector<BufferId> parts;
    for (std::size_t r = 0; r < rank.ranks(); ++r) parts.push_back(views[r * items + i]);
    wholes.push_back(whole_of_parts(rank, bucket.items[i].value, parts, label));
  }
  return wholes;
}

BufferId request_stop(RankStep& rank) {
  return rank.builder().make("motley::stop_request", {}, DType::kF32, {1}, "stop");
}

}  // namespace motley::synth
