#include "motley/synth/stages/gradient_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "motley/base/check.h"
#include "motley/program/parts.h"
#include "motley/synth/ranks/lower_rank.h"
#include "motley/synth/state/state_rows.h"

namespace motley::synth {

using graph::Form;
using graph::FormKind;

namespace {

bool are_of_one_stage(const std::vector<GradientShare>& shares) {
  return std::all_of(shares.begin(), shares.end(),
                     [&](const GradientShare& each) { return each.stage == shares.front().stage; });
}

/// Finds the form in which regions keep a parameter in parts; none: all have it whole.
Result<std::optional<Form>> find_cut(const std::string& parameter,
                                     const std::vector<GradientShare>& shares) {
  std::optional<Form> cut;
  for (const GradientShare& share : shares) {
    if (share.form.kind != FormKind::kSharded) continue;
    if (cut && *cut != share.form)
      return usage_error("synth.unsupported",
                         fmt::format("parameter '{}' is kept as {} by one region and as {} by "
                                     "another; regions that share it must cut it alike",
                                     parameter, print_form(*cut), print_form(share.form)));
    cut = share.form;
  }
  return cut;
}

}  // namespace

void GradientExchange::add(const Share& share) {
  const std::string& name = value_of(share, parameter_of(share)).name;
  const auto [place, is_new] = places_.try_emplace(name, shares_.size());
  if (is_new) shares_.push_back({name, {}});
  shares_[place->second].second.push_back(share);
}

Result<void> GradientExchange::arrange() {
  std::vector<SharedGradient> gradients;
  for (const auto& [name, shares] : shares_) {
    if (!are_of_one_stage(shares)) {
      MOTLEY_ASSIGN(SharedGradient gradient, find_holders(name, shares));
      if (find_owners(name, gradient)) shared_.insert(name);
      gradients.push_back(std::move(gradient));
      continue;
    }
    for (const Share& share : shares) {
      keep(share);
      if (share.form.kind == FormKind::kSharded || share.member == shares.front().member)
        counted_alone_.insert({share.stage, share.member, share.output});
    }
  }
  sums_ =
      find_gradient_sums(std::move(gradients), {step_, target_.bucket_bytes, target_.busy_until});
  for (const SharedGradient& each : sums_.gradients) progress_.emplace_back(each.holders.size());
  for (std::size_t i = 0; i < sums_.intervals.size(); ++i)
    for (const auto& [rank, holder] : sums_.intervals[i].holders)
      if (const Held held = held_on(i, rank);
          !held.gradient.has_owners || sums_.intervals[i].owner == rank)
        ++held.progress.intervals;
  for (std::size_t b = 0; b < sums_.buckets.size(); ++b) {
    for (const auto& [rank, position] : sums_.buckets[b].packed)
      events_.push_back({position, b, rank});
    events_.push_back({sums_.buckets[b].begins, b, Event::kSum});
  }
  std::sort(events_.rbegin(), events_.rend());
  return {};
}

Result<SharedGradient> GradientExchange::find_holders(const std::string& name,
                                                      const std::vector<Share>& shares) {
  const Share& first = shares.front();
  SharedGradient gradient{{},
                          {1, rank_of(first).whole_elements(parameter_of(first)), 1},
                          value_of(first, output(first).value).dtype};
  MOTLEY_ASSIGN(const std::optional<Form> cut, find_cut(name, shares));
  if (cut) gradient.slab = graph::slab_of(rank_of(first).whole_shape(parameter_of(first)), *cut);
  std::map<std::size_t, std::size_t> of_rank;
  std::set<std::size_t> givers;  // regions of which a device gives what all of them have
  for (const Share& share : shares) {
    if (const auto known = of_rank.find(share.rank); known != of_rank.end()) {
      gradient.holders[known->second].further.push_back(share);
      continue;
    }
    const bool is_cut = share.form.kind == FormKind::kSharded;
    GradientHolder holder{share};
    holder.is_giver = is_cut || share.is_term || givers.insert(share.stage).second;
    holder.begin = is_cut ? rank_of(share).begin(cut->extent) : 0;
    holder.end = is_cut ? holder.begin + rank_of(share).own(cut->extent) : gradient.slab.extent;
    if (holder.begin == holder.end) {
      keep(share);  // it has no part of what others exchange
      continue;
    }
    of_rank.emplace(share.rank, gradient.holders.size());
    gradient.holders.push_back(std::move(holder));
  }
  return gradient;
}

/// Assigns the parameter's rows to its owners among the holders, and tells their updates.
bool GradientExchange::find_owners(const std::string& name, SharedGradient& gradient) {
  const auto owners = target_.owners.find(name);
  if (owners == target_.owners.end()) return false;
  std::vector<OwnerRows> rows;
  bool may = true, has_shares = false;
  for (const GradientHolder& each : gradient.holders) {
    const double share = owners->second[each.share.rank];
    rows.push_back({each.begin, each.end, share});
    may = may && update_of(each.share).may_share(parameter_of(each.share));
    has_shares = has_shares || share != 0;
  }
  if (!may || !has_shares) return false;
  const auto owned = share_rows(rows, gradient.slab.extent);
  if (!owned) return false;
  gradient.has_owners = true;
  gradient.is_even = std::all_of(rows.begin(), rows.end(), [&](const OwnerRows& each) {
    return each.share == rows.front().share;
  });
  for (std::size_t h = 0; h < rows.size(); ++h) {
    GradientHolder& holder = gradient.holders[h];
    std::tie(holder.own_begin, holder.own_count) = (*owned)[h];
    const Update::OwnRows own{gradient.slab, holder.begin, holder.end - holder.begin,
                              holder.own_begin, holder.own_count};
    update_of(holder.share).own(parameter_of(holder.share), own);
    for (const Share& other : holder.further) update_of(other).own(parameter_of(other), own);
  }
  return true;
}

GradientExchange::Held GradientExchange::held_on(std::size_t interval, std::size_t rank) {
  const GradientInterval& about = sums_.intervals[interval];
  const std::size_t h = about.holders.at(rank);
  const SharedGradient& gradient = sums_.gradients[about.gradient];
  return {gradient, gradient.holders[h], progress_[about.gradient][h]};
}

ProgramBuilder& GradientExchange::builder_on(std::size_t interval, std::size_t rank) {
  return rank_of(held_on(interval, rank).holder.share).builder();
}

void GradientExchange::begin(std::int64_t position) {
  for (; !events_.empty() && events_.back().position <= position; events_.pop_back()) {
    const Event& event = events_.back();
    event.rank == Event::kSum ? sum(event.bucket) : pack(event.bucket, event.rank);
  }
}

void GradientExchange::finish() {
  begin(std::numeric_limits<std::int64_t>::max());
  for (const auto& [key, shares] : alone_) {
    Update& update = update_of(shares.front());
    for (const Share& share : shares) {
      const BufferId gradient = target_.gradient(share);
      update.add(parameter_of(share), gradient);
      if (counted_alone_.contains({share.stage, share.member, share.output}))
        counted_[share.rank].push_back(gradient);
    }
    const int bucket = shares.front().bucket;
    update.write(bucket < 0 ? "update" : bucket_label(static_cast<std::size_t>(bucket)));
  }
  for (std::size_t b = 0; b < sums_.buckets.size(); ++b) {
    take_back(b);
    if (target_.updates_at_once) gather_updated();
  }
}

void GradientExchange::give_back() {
  gather_updated();
  MOTLEY_CHECK(gathered_ == sums_.buckets.size());
  // Not before: no update waits for rows of others.
  for (const Arrived& each : arrived_) {
    std::vector<Shape> shapes;
    for (const std::size_t i : each.intervals) shapes.push_back(sums_.rows_of(i));
    const std::vector<BufferId> fresh =
        builder_on(each.intervals.front(), each.rank).unpack(each.rows, shapes, each.label);
    for (std::size_t n = 0; n < fresh.size(); ++n)
      held_on(each.intervals[n], each.rank).progress.fresh[each.intervals[n]] = fresh[n];
  }
  for (std::size_t g = 0; g < progress_.size(); ++g)
    for (std::size_t h = 0; h < progress_[g].size(); ++h) {
      const SharedGradient& gradient = sums_.gradients[g];
      if (!gradient.has_owners) continue;
      const std::string label = "updated";
      const Held held{gradient, gradient.holders[h], progress_[g][h]};
      RankStep& rank = rank_of(held.holder.share);
      const BufferId whole = join(held, held.progress.fresh, label);
      rank.builder().compute(
          "motley::assign",
          {{buffer_list({rank.value(parameter_of(held.holder.share))})}, {buffer_list({whole})}},
          {}, label);
    }
}

/// Adds up the terms of a holder's regions.
BufferId GradientExchange::own_gradient(const Held& held) {
  BufferId& own = held.progress.own;
  if (!own.is_none()) return own;
  own = target_.gradient(held.holder.share);
  ProgramBuilder& builder = rank_of(held.holder.share).builder();
  for (const Share& other : held.holder.further) {
    const BufferId sum = builder.add_like(own);
    builder.compute("aten::add.Tensor", {{own}, {target_.gradient(other)}, {std::int64_t{1}}},
                    {sum}, "gradients");
    own = sum;
  }
  return own;
}

BufferId GradientExchange::piece_of(const Held& held, std::size_t interval,
                                    const std::string& label) {
  const auto& [gradient, holder, progress] = held;
  const GradientInterval& about = sums_.intervals[interval];
  ProgramBuilder& builder = rank_of(holder.share).builder();
  const Shape rows = sums_.rows_of(interval);
  if (!holder.is_giver) return builder.zeros(rows, gradient.dtype, label);
  const BufferId own = own_gradient(held);
  if (about.begin == holder.begin && about.end == holder.end) return own;
  return builder.part(own, gradient.slab, about.begin - holder.begin, rows, label);
}

void GradientExchange::pack(std::size_t b, std::size_t rank) {
  const SumBucket& bucket = sums_.buckets[b];
  std::vector<BufferId> pieces;
  for (const std::size_t i : bucket.intervals)
    pieces.push_back(piece_of(held_on(i, rank), i, bucket_label(b)));
  begun_[{b, rank}] =
      builder_on(bucket.intervals.front(), rank).pack(pieces, bucket.dtype, bucket_label(b));
}

bool GradientExchange::is_even(const SumBucket& bucket) const {
  return std::all_of(bucket.intervals.begin(), bucket.intervals.end(), [&](std::size_t i) {
    return sums_.gradients[sums_.intervals[i].gradient].is_even;
  });
}

std::map<std::size_t, std::vector<std::size_t>> GradientExchange::by_node(
    const std::vector<std::size_t>& ranks) const {
  std::map<std::size_t, std::vector<std::size_t>> nodes;
  for (const std::size_t rank : ranks)
    nodes[target_.nodes.empty() ? rank : target_.nodes[rank]].push_back(rank);
  return nodes;
}

/// Within nodes first, where some have several of the ranks: their links carry it once.
ExchangeMethod GradientExchange::scatter_method(const SumBucket& bucket) const {
  const std::size_t nodes = by_node(bucket.ranks).size();
  const bool has_levels = nodes > 1 && nodes < bucket.ranks.size() && !is_even(bucket);
  return has_levels ? ExchangeMethod::kHierarchical : ExchangeMethod::kNative;
}

/// Sums a bucket; of one with owners every rank gets what it owns.
void GradientExchange::sum(std::size_t b) {
  const SumBucket& bucket = sums_.buckets[b];
  if (bucket.ranks.size() < 2) return;
  const GroupId group = target_.group(bucket.ranks);
  const Shape counts = bucket.has_owners ? sums_.owned_elements(bucket) : Shape();
  for (std::size_t r = 0; r < bucket.ranks.size(); ++r) {
    ProgramBuilder& builder = builder_on(bucket.intervals.front(), bucket.ranks[r]);
    BufferId& begun = begun_.at({b, bucket.ranks[r]});
    builder.use_group(group);
    if (bucket.has_owners)
      begun = builder.exchange(
          program::collective_name(program::kReduceScatter, scatter_method(bucket)), begun,
          {integers(counts)}, counts[r], bucket_label(b));
    else
      builder.all_reduce(begun, bucket_label(b));
  }
}

/// Gives sums to the updates of those who have all that they wait for.
void GradientExchange::take_back(std::size_t b) {
  const SumBucket& bucket = sums_.buckets[b];
  const std::string label = bucket_label(b);
  for (const std::size_t rank : bucket.ranks) {
    std::vector<std::size_t> here;
    std::vector<Shape> shapes;
    for (const std::size_t i : bucket.intervals) {
      if (bucket.has_owners && sums_.intervals[i].owner != rank) continue;
      here.push_back(i);
      shapes.push_back(sums_.rows_of(i));
    }
    if (here.empty()) continue;
    const std::vector<BufferId> sums =
        builder_on(bucket.intervals.front(), rank).unpack(begun_.at({b, rank}), shapes, label);
    std::set<std::pair<std::size_t, std::size_t>> changed;  // stage, member
    for (std::size_t n = 0; n < here.size(); ++n) {
      const Held held = held_on(here[n], rank);
      const Share& share = held.holder.share;
      if (bucket.has_owners || sums_.intervals[here[n]].first == rank)
        counted_[rank].push_back(sums[n]);
      held.progress.back[here[n]] = sums[n];
      if (!held.progress.is_updated()) continue;
      update_of(share).add(parameter_of(share), join(held, held.progress.back, label));
      changed.insert({share.stage, share.member});
    }
    for (const auto& [stage, member] : changed) target_.update(stage, member).write(label);
  }
}

/// Gathers, in order, the buckets whose owners have updated all rows.
void GradientExchange::gather_updated() {
  for (; gathered_ < sums_.buckets.size(); ++gathered_) {
    const SumBucket& bucket = sums_.buckets[gathered_];
    if (!bucket.has_owners) continue;
    if (!std::all_of(bucket.intervals.begin(), bucket.intervals.end(), [&](std::size_t i) {
          return held_on(i, sums_.intervals[i].owner).progress.is_updated();
        }))
      return;
    is_even(bucket) || bucket.ranks.size() < 2 ? gather(gathered_) : send_updated(gathered_);
  }
}

void GradientExchange::send_updated(std::size_t b) {
  const SumBucket& bucket = sums_.buckets[b];
  const std::string label = std::string(program::kUpdatedLabel) + bucket_label(b);
  const auto nodes = by_node(bucket.ranks);
  for (const std::size_t owner : bucket.ranks) {
    std::vector<std::size_t> intervals;
    std::vector<BufferId> rows;
    for (const std::size_t i : bucket.intervals) {
      if (sums_.intervals[i].owner != owner) continue;
      intervals.push_back(i);
      rows.push_back(updated_rows(i, label));
    }
    if (rows.empty()) continue;
    ProgramBuilder& builder = builder_on(intervals.front(), owner);
    const BufferId flat = builder.pack(rows, builder.buffer(rows.front()).dtype, label);
    arrived_.push_back({owner, flat, intervals, label});
    const auto give = [&](BufferId given, std::size_t from, std::size_t to) {
      ProgramBuilder &out = builder_on(intervals.front(), from),
                     &in = builder_on(intervals.front(), to);
      out.send(given, Rank(to), label);
      // The receiver has summed before: the rows do not lie there while it computes.
      const BufferId got = in.receive(Rank(from), out.buffer(given).dtype, out.buffer(given).shape,
                                      in.last_computed(), label);
      arrived_.push_back({to, got, intervals, label});
      return got;
    };
    for (const auto& [node, ranks] : nodes) {
      std::size_t from = owner;
      BufferId here = flat;
      if (std::find(ranks.begin(), ranks.end(), owner) == ranks.end()) {
        from = ranks.front();
        here = give(flat, owner, from);
      }
      for (const std::size_t to : ranks)
        if (to != owner && to != from) give(here, from, to);
    }
  }
}

void GradientExchange::gather(std::size_t b) {
  const SumBucket& bucket = sums_.buckets[b];
  const std::string label = std::string(program::kUpdatedLabel) + bucket_label(b);
  const Shape counts = sums_.owned_elements(bucket);
  std::int64_t all = 0;
  for (const std::size_t i : bucket.intervals) all += sums_.elements(i);
  const Share& any =
      sums_.gradients[sums_.intervals[bucket.intervals.front()].gradient].holders.front().share;
  const DType dtype = value_of(any, parameter_of(any)).dtype;
  for (const std::size_t rank : bucket.ranks) {
    ProgramBuilder& builder = builder_on(bucket.intervals.front(), rank);
    std::vector<BufferId> rows;
    for (const std::size_t i : bucket.intervals)
      if (sums_.intervals[i].owner == rank) rows.push_back(updated_rows(i, label));
    BufferId flat =
        rows.empty() ? builder.zeros({0}, dtype, label) : builder.pack(rows, dtype, label);
    if (bucket.ranks.size() > 1) {
      builder.use_group(target_.group(bucket.ranks));
      flat = builder.exchange(program::kAllGather, flat, {integers(counts)}, all, label);
    }
    arrived_.push_back({rank, flat, bucket.intervals, label});
  }
}

BufferId GradientExchange::updated_rows(std::size_t interval, const std::string& label) {
  const GradientInterval& about = sums_.intervals[interval];
  const auto& [gradient, holder, progress] = held_on(interval, about.owner);
  const BufferId own = update_of(holder.share).updated(parameter_of(holder.share));
  if (about.begin == holder.own_begin && about.end == holder.own_begin + holder.own_count)
    return own;
  return rank_of(holder.share)
      .builder()
      .part(own, gradient.slab, about.begin - holder.own_begin, sums_.rows_of(interval), label);
}

/// Joins pieces of a holder's rows, by interval.
BufferId GradientExchange::join(const Held& held, const std::map<std::size_t, BufferId>& pieces_of,
                                const std::string& label) {
  const GradientHolder& holder = held.holder;
  RankStep& rank = rank_of(holder.share);
  ProgramBuilder& builder = rank.builder();
  // Buckets are filled by time: the pieces lie as the intervals do.
  std::map<std::int64_t, BufferId> in_order;
  for (const auto& [interval, piece] : pieces_of) in_order[sums_.intervals[interval].begin] = piece;
  std::vector<BufferId> pieces;
  for (const auto& [begin, piece] : in_order) pieces.push_back(piece);
  const BufferId joined = builder.join_rows(pieces, label);
  const Shape rows = builder.buffer(joined).shape;
  Shape shape = rank.local_shape(parameter_of(holder.share), holder.share.form);
  if (rows[1] != holder.end - holder.begin) {  // flat, as the update of own rows has them
    shape.assign(shape.size(), 1);
    shape.back() = rows[0] * rows[1] * rows[2];
  }
  return builder.view(joined, std::move(shape), label);
}

}  // namespace motley::synth
