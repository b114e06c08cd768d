#include "motley/synth/stages/gradient_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "motley/base/check.h"
#include "motley/program/parts.h"
#include "motley/synth/ranks/lower_rank.h"
#include "motley/synth/state/state_rows.h"

namespace motley::synth {
using graph::Form;
using graph::FormKind;
using graph::Slab;

class GradientExchange::Writer {
 public:
  /// What a device has of a parameter, and how its own gradient comes to be the sum of all.
  struct Holder {
    Share share;
    ValueId parameter;                ///< in the stage's graph
    bool is_giver = true;             ///< its region's; false: another device of it gives the same
    std::vector<Share> further = {};  ///< of other regions of the same device
    std::int64_t begin = 0, end = 0;  ///< of the extent
    BufferId own = {};                ///< its gradient, once it is packed
    std::size_t intervals = 0;        ///< that it has, or where states are shared owns
    std::map<std::size_t, BufferId> back = {};   ///< of these
    std::int64_t own_begin = 0, own_count = 0;   ///< where states are shared: rows that it owns
    bool is_updated = false;                     ///< these are
    std::size_t all_intervals = 0;               ///< that it has
    std::map<std::size_t, BufferId> fresh = {};  ///< of these, updated

    std::int64_t ready() const {
      std::int64_t last = share.ready;
      for (const Share& other : further) last = std::max(last, other.ready);
      return last;
    }
  };

  /// An interval of a parameter, and who has it.
  struct Interval {
    std::size_t parameter;
    std::int64_t begin, end;
    std::vector<std::size_t> holders;  ///< positions among the parameter's
    std::size_t owner = kNobody;       ///< of them, who updates it; kNobody: all do
  };
  static constexpr std::size_t kNobody = SIZE_MAX;

  struct Parameter {
    std::vector<Holder> holders;
    Slab slab;
    DType dtype = DType::kF32;
    bool has_owners = false;
  };

  /// Intervals that the same devices sum together.
  struct SumBucket {
    std::vector<std::size_t> ranks;  ///< ascending
    DType dtype = DType::kF32;
    std::vector<std::size_t> intervals;
    bool has_owners = false;  ///< of its intervals, which are in the order of these
    std::map<std::size_t, std::int64_t> packed = {};  ///< by rank: behind which position
    std::int64_t begins = 0;                          ///< the same of the sum
    std::int64_t bytes = 0;
    double rate = 0;  ///< at which its slowest holder gets bytes; 0: not known
  };

  /// Something that is written behind a position: a rank packs a bucket, or, after all such, its
  /// sum begins.
  struct Event {
    static constexpr std::size_t kSum = SIZE_MAX;
    std::int64_t position;
    std::size_t bucket, rank;
    auto operator<=>(const Event&) const = default;
  };

  Writer(const StagedStep& step, Target target) : step_(step), target_(std::move(target)) {}

  /// Of one region alone: no exchange.
  void keep(const std::vector<Share>& shares) {
    for (const Share& share : shares) {
      const bool is_cut = share.form.kind == FormKind::kSharded;
      alone_[{share.bucket, share.stage, share.member}].push_back(share);
      if (is_cut || share.member == shares.front().member)
        counted_alone_.insert({share.stage, share.member, share.output});
    }
  }

  /// A device that has no part of what others exchange.
  void keep_nothing(const Share& share) {
    alone_[{share.bucket, share.stage, share.member}].push_back(share);
  }

  void add(Parameter parameter) {
    const std::size_t index = parameters_.size();
    std::set<std::int64_t> cuts;
    for (const Holder& holder : parameter.holders) {
      cuts.insert(holder.begin);
      cuts.insert(holder.end);
      if (holder.own_count > 0)
        cuts.insert({holder.own_begin, holder.own_begin + holder.own_count});
    }
    for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) {
      Interval interval{index, *cut, *std::next(cut), {}};
      for (std::size_t h = 0; h < parameter.holders.size(); ++h)
        if (parameter.holders[h].begin <= interval.begin &&
            interval.end <= parameter.holders[h].end) {
          Holder& holder = parameter.holders[h];
          interval.holders.push_back(h);
          ++holder.all_intervals;
          const bool is_own = holder.own_begin <= interval.begin &&
                              interval.end <= holder.own_begin + holder.own_count;
          if (is_own) interval.owner = h;
          if (is_own || !parameter.has_owners) ++holder.intervals;
        }
      intervals_.push_back(std::move(interval));
    }
    parameters_.push_back(std::move(parameter));
  }

  void arrange() {
    fill_buckets();
    for (SumBucket& bucket : buckets_) find_times(bucket);
    order_sums();
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      for (const auto& [rank, position] : buckets_[b].packed)
        events_.push_back({position, b, rank});
      events_.push_back({buckets_[b].begins, b, Event::kSum});
    }
    std::sort(events_.begin(), events_.end());
  }

  void begin(std::int64_t position) {
    for (; next_ < events_.size() && events_[next_].position <= position; ++next_) {
      const Event& event = events_[next_];
      if (event.rank == Event::kSum)
        sum(event.bucket);
      else
        pack(event.bucket, event.rank);
    }
  }

  void finish() {
    begin(std::numeric_limits<std::int64_t>::max());
    for (const auto& [key, shares] : alone_) {
      const auto& [bucket, stage, member] = key;
      for (const Share& share : shares) {
        const BufferId gradient = target_.gradient(share);
        target_.update(stage, member).add(parameter_of(share), gradient);
        if (counted_alone_.contains({stage, member, share.output}))
          counted_[share.rank].push_back(gradient);
      }
      target_.update(stage, member).write(bucket < 0 ? "update" : bucket_label(bucket));
    }
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      take_back(b);
      if (target_.updates_at_once) gather_updated();
    }
  }

  void give_back() {
    gather_updated();
    MOTLEY_CHECK(gathered_ == buckets_.size());
    for (Parameter& parameter : parameters_)
      for (Holder& holder : parameter.holders) {
        if (!parameter.has_owners) continue;
        const std::string label = "updated";
        ProgramBuilder& builder = rank_of(holder.share).builder();
        const BufferId whole = join(holder, parameter, holder.fresh, label);
        builder.compute("motley::assign",
                        {{buffer_list({rank_of(holder.share).value(holder.parameter)})},
                         {buffer_list({whole})}},
                        {}, label);
      }
  }

  const std::vector<BufferId>& counted(std::size_t rank) { return counted_[rank]; }

  ValueId parameter_of(const Share& share) const { return output(share).of; }
  DType dtype_of(const Share& share) const {
    return step_.stages[share.stage].graph.value(output(share).value).dtype;
  }
  RankStep& rank_of(const Share& share) { return target_.rank(share.stage, share.member); }

  /// Gives each holder the rows that it owns, if any of them has a share, and tells its updates.
  bool find_owners(Parameter& parameter) {
    std::vector<double> shares;
    for (const Holder& holder : parameter.holders)
      shares.push_back(target_.state_shares.empty() ? 0 : target_.state_shares[holder.share.rank]);
    const bool may =
        std::all_of(parameter.holders.begin(), parameter.holders.end(), [&](const Holder& holder) {
          return target_.update(holder.share.stage, holder.share.member)
              .may_share(holder.parameter);
        });
    if (!may || std::all_of(shares.begin(), shares.end(), [](double each) { return each == 0; }))
      return false;
    std::vector<OwnerRows> holders;
    for (std::size_t h = 0; h < shares.size(); ++h)
      holders.push_back({parameter.holders[h].begin, parameter.holders[h].end, shares[h]});
    const auto owned = share_rows(holders, parameter.slab.extent);
    if (!owned) return false;
    parameter.has_owners = true;
    for (std::size_t h = 0; h < shares.size(); ++h) {
      Holder& holder = parameter.holders[h];
      std::tie(holder.own_begin, holder.own_count) = (*owned)[h];
      const Update::OwnRows rows{parameter.slab, holder.begin, holder.end - holder.begin,
                                 holder.own_begin, holder.own_count};
      target_.update(holder.share.stage, holder.share.member).own(holder.parameter, rows);
      for (const Share& other : holder.further)
        target_.update(other.stage, other.member).own(parameter_of(other), rows);
    }
    return true;
  }

 private:
  const graph::Output& output(const Share& share) const {
    return step_.stages[share.stage].graph.outputs[static_cast<std::size_t>(share.output)];
  }

  std::int64_t elements(const Interval& interval) const {
    const Slab& slab = parameters_[interval.parameter].slab;
    return slab.before * (interval.end - interval.begin) * slab.after;
  }

  std::int64_t ready(const Interval& interval) const {
    std::int64_t last = 0;
    for (const std::size_t h : interval.holders)
      last = std::max(last, parameters_[interval.parameter].holders[h].ready());
    return last;
  }

  void fill_buckets() {
    std::stable_sort(intervals_.begin(), intervals_.end(),
                     [&](const Interval& a, const Interval& b) { return ready(a) < ready(b); });
    std::map<std::tuple<std::vector<std::size_t>, DType, bool>, std::size_t> open;
    std::vector<std::int64_t> bytes;
    for (std::size_t i = 0; i < intervals_.size(); ++i) {
      const Parameter& parameter = parameters_[intervals_[i].parameter];
      std::vector<std::size_t> ranks;
      for (const std::size_t h : intervals_[i].holders)
        ranks.push_back(parameter.holders[h].share.rank);
      std::sort(ranks.begin(), ranks.end());
      const std::int64_t size = elements(intervals_[i]) * dtype_size(parameter.dtype);
      const auto [found, is_new] =
          open.try_emplace({ranks, parameter.dtype, parameter.has_owners}, buckets_.size());
      if (is_new || bytes[found->second] + size > target_.bucket_bytes.value) {
        found->second = buckets_.size();
        buckets_.push_back({ranks, parameter.dtype, {}, parameter.has_owners});
        bytes.push_back(0);
      }
      buckets_[found->second].intervals.push_back(i);
      bytes[found->second] += size;
    }
    for (std::size_t b = 0; b < buckets_.size(); ++b) buckets_[b].bytes = bytes[b];
    for (SumBucket& bucket : buckets_)
      if (bucket.has_owners)
        std::stable_sort(bucket.intervals.begin(), bucket.intervals.end(),
                         [&](std::size_t a, std::size_t b) { return owner_of(a) < owner_of(b); });
  }

  /// The rank that owns an interval.
  std::size_t owner_of(std::size_t interval) const {
    const Interval& about = intervals_[interval];
    return parameters_[about.parameter].holders[about.owner].share.rank;
  }

  /// By rank of the bucket's, how many elements it owns.
  Shape owned_elements(const SumBucket& bucket) const {
    Shape counts(bucket.ranks.size(), 0);
    for (const std::size_t i : bucket.intervals)
      counts[place_of(bucket, owner_of(i))] += elements(intervals_[i]);
    return counts;
  }

  static std::size_t place_of(const SumBucket& bucket, std::size_t rank) {
    return static_cast<std::size_t>(
        std::lower_bound(bucket.ranks.begin(), bucket.ranks.end(), rank) - bucket.ranks.begin());
  }

  /// A holder of the bucket's on the rank.
  const Holder& holder_on(const SumBucket& bucket, std::size_t rank) const {
    const Interval& any = intervals_[bucket.intervals.front()];
    const Parameter& parameter = parameters_[any.parameter];
    return parameter
        .holders[*std::find_if(any.holders.begin(), any.holders.end(), [&](std::size_t h) {
          return parameter.holders[h].share.rank == rank;
        })];
  }

  /// The order of all sums, to which each holder keeps: the one that can begin first does, when it
  /// is there and none of its holders is in another one; of equals the one that is there first. In
  /// the order in which they are there, replicas that are cut differently would wait for each other
  /// in a chain: a holder of two stretches of layers does those of one behind the other's, whose
  /// holders wait for a third. Each is then waited for when those before it are over.
  void order_sums() {
    std::stable_sort(buckets_.begin(), buckets_.end(),
                     [](const SumBucket& a, const SumBucket& b) { return a.begins < b.begins; });
    std::map<std::size_t, double> free;  // by rank: from when on
    const auto earliest = [&](std::size_t b) {
      const SumBucket& bucket = buckets_[b];
      double time = step_.times.empty()
                        ? 0
                        : step_.times[std::min(static_cast<std::size_t>(bucket.begins),
                                               step_.times.size() - 1)];
      for (const std::size_t rank : bucket.ranks) time = std::max(time, free[rank]);
      return time;
    };
    using Next = std::pair<double, std::size_t>;
    std::priority_queue<Next, std::vector<Next>, std::greater<>> left;
    for (std::size_t b = 0; b < buckets_.size(); ++b) left.emplace(earliest(b), b);
    std::vector<SumBucket> ordered;
    std::int64_t position = 0;
    while (!left.empty()) {
      const auto [noted, b] = left.top();
      left.pop();
      const double time = earliest(b);
      if (time > noted) {
        left.emplace(time, b);
        continue;
      }
      SumBucket& bucket = buckets_[b];
      // What goes out of a holder comes back.
      const double takes =
          bucket.rate > 0 ? 2 * static_cast<double>(bucket.bytes) / bucket.rate : 0;
      for (const std::size_t rank : bucket.ranks) free[rank] = time + takes;
      position = bucket.begins = std::max(position, bucket.begins);
      ordered.push_back(std::move(bucket));
    }
    buckets_ = std::move(ordered);
  }

  void find_times(SumBucket& bucket) {
    for (const std::size_t i : bucket.intervals)
      for (const std::size_t h : intervals_[i].holders) {
        const Holder& holder = parameters_[intervals_[i].parameter].holders[h];
        std::int64_t& last = bucket.packed[holder.share.rank];
        last = std::max(last, holder.ready());
        const double rate = step_.stages[holder.share.stage].rate;
        if (rate > 0) bucket.rate = bucket.rate > 0 ? std::min(bucket.rate, rate) : rate;
      }
    for (const auto& [rank, position] : bucket.packed)
      bucket.begins = std::max({bucket.begins, position, target_.busy_until(rank)});
  }

  /// What a holder has of its own gradient: all its regions' terms together.
  BufferId own_sum(Holder& holder) {
    if (!holder.own.is_none()) return holder.own;
    holder.own = target_.gradient(holder.share);
    ProgramBuilder& builder = rank_of(holder.share).builder();
    for (const Share& other : holder.further) {
      const BufferId sum = builder.add_like(holder.own);
      builder.compute("aten::add.Tensor",
                      {{holder.own}, {target_.gradient(other)}, {std::int64_t{1}}}, {sum},
                      "gradients");
      holder.own = sum;
    }
    return holder.own;
  }

  /// Rows of an interval of what a holder has.
  BufferId piece_of(Holder& holder, const Interval& interval, const std::string& label) {
    const Slab& slab = parameters_[interval.parameter].slab;
    ProgramBuilder& builder = rank_of(holder.share).builder();
    const Shape rows{slab.before, interval.end - interval.begin, slab.after};
    const DType dtype = parameters_[interval.parameter].dtype;
    if (!holder.is_giver)
      return builder.make("aten::zeros", zeros_arguments(rows, dtype), dtype, rows, label);
    const BufferId own = own_sum(holder);
    if (interval.begin == holder.begin && interval.end == holder.end) return own;
    return builder.make("motley::part",
                        {{own}, {slab.before}, {interval.begin - holder.begin}, {slab.after}},
                        dtype, rows, label);
  }

  void pack(std::size_t b, std::size_t rank) {
    const SumBucket& bucket = buckets_[b];
    const std::string label = bucket_label(b);
    std::vector<BufferId> pieces;
    std::int64_t size = 0;
    ProgramBuilder* builder = nullptr;
    for (const std::size_t i : bucket.intervals) {
      size += elements(intervals_[i]);
      for (const std::size_t h : intervals_[i].holders) {
        Holder& holder = parameters_[intervals_[i].parameter].holders[h];
        if (holder.share.rank != rank) continue;
        builder = &rank_of(holder.share).builder();
        pieces.push_back(piece_of(holder, intervals_[i], label));
      }
    }
    begun_[{b, rank}] =
        builder->make("motley::pack", {{buffer_list(pieces)}}, bucket.dtype, {size}, label);
  }

  void sum(std::size_t b) {
    const SumBucket& bucket = buckets_[b];
    if (bucket.ranks.size() < 2) return;
    if (bucket.has_owners) return scatter(b);
    const GroupId group = target_.group(bucket.ranks);
    const Parameter& any = parameters_[intervals_[bucket.intervals.front()].parameter];
    for (const Holder& holder : any.holders) {
      const auto begun = begun_.find({b, holder.share.rank});
      if (begun == begun_.end()) continue;
      ProgramBuilder& builder = rank_of(holder.share).builder();
      builder.use_group(group);
      builder.all_reduce(begun->second, bucket_label(b));
    }
  }

  /// Every rank gets the sum of what it owns.
  void scatter(std::size_t b) {
    const SumBucket& bucket = buckets_[b];
    const GroupId group = target_.group(bucket.ranks);
    const Shape counts = owned_elements(bucket);
    for (const std::size_t rank : bucket.ranks) {
      ProgramBuilder& builder = rank_of(holder_on(bucket, rank).share).builder();
      builder.use_group(group);
      BufferId& begun = begun_.at({b, rank});
      begun = builder.exchange(program::kReduceScatter, begun, {integers(counts)},
                               counts[place_of(bucket, rank)], bucket_label(b));
    }
  }

  /// [1, ..., elements], as the update of own rows has them.
  static Shape flat_shape(std::size_t dims, std::int64_t elements) {
    Shape shape(dims, 1);
    shape.back() = elements;
    return shape;
  }

  /// The sums of a rank's own intervals go to its updates.
  void take_own(std::size_t b) {
    const SumBucket& bucket = buckets_[b];
    const std::string label = bucket_label(b);
    for (const std::size_t rank : bucket.ranks) {
      std::vector<std::size_t> own;
      std::vector<Shape> shapes;
      for (const std::size_t i : bucket.intervals) {
        if (owner_of(i) != rank) continue;
        own.push_back(i);
        shapes.push_back(rows_of(intervals_[i]));
      }
      if (own.empty()) continue;
      const std::vector<BufferId> sums = rank_of(holder_on(bucket, rank).share)
                                             .builder()
                                             .unpack(begun_.at({b, rank}), shapes, label);
      std::set<std::pair<std::size_t, std::size_t>> changed;  // stage, member
      for (std::size_t n = 0; n < own.size(); ++n) {
        const Interval& interval = intervals_[own[n]];
        Parameter& parameter = parameters_[interval.parameter];
        Holder& holder = parameter.holders[interval.owner];
        counted_[rank].push_back(sums[n]);
        holder.back[own[n]] = sums[n];
        if (holder.back.size() < holder.intervals) continue;
        holder.is_updated = true;
        target_.update(holder.share.stage, holder.share.member)
            .add(holder.parameter, join(holder, parameter, holder.back, label));
        changed.insert({holder.share.stage, holder.share.member});
      }
      for (const auto& [stage, member] : changed) target_.update(stage, member).write(label);
    }
  }

  /// In order: the buckets of which all own rows have been updated.
  void gather_updated() {
    for (; gathered_ < buckets_.size(); ++gathered_) {
      const SumBucket& bucket = buckets_[gathered_];
      if (!bucket.has_owners) continue;
      if (std::any_of(bucket.intervals.begin(), bucket.intervals.end(), [&](std::size_t i) {
            const Interval& interval = intervals_[i];
            return !parameters_[interval.parameter].holders[interval.owner].is_updated;
          }))
        return;
      gather(gathered_);
    }
  }

  void gather(std::size_t b) {
    const SumBucket& bucket = buckets_[b];
    const std::string label = "updated " + bucket_label(b);
    const Shape counts = owned_elements(bucket);
    std::vector<Shape> shapes;
    std::int64_t all = 0;
    for (const std::size_t i : bucket.intervals) {
      shapes.push_back(rows_of(intervals_[i]));
      all += elements(intervals_[i]);
    }
    for (const std::size_t rank : bucket.ranks) {
      ProgramBuilder& builder = rank_of(holder_on(bucket, rank).share).builder();
      std::vector<BufferId> rows;
      for (const std::size_t i : bucket.intervals)
        if (owner_of(i) == rank) rows.push_back(updated_rows(intervals_[i], label));
      const DType dtype = parameter_dtype(bucket);
      const std::int64_t here = counts[place_of(bucket, rank)];
      BufferId flat =
          rows.empty() ? builder.make("aten::zeros", zeros_arguments({0}, dtype), dtype, {0}, label)
                       : builder.make("motley::pack", {{buffer_list(rows)}}, dtype, {here}, label);
      if (bucket.ranks.size() > 1) {
        builder.use_group(target_.group(bucket.ranks));
        flat = builder.exchange(program::kAllGather, flat, {integers(counts)}, all, label);
      }
      const std::vector<BufferId> fresh = builder.unpack(flat, shapes, label);
      for (std::size_t n = 0; n < bucket.intervals.size(); ++n) {
        const Interval& interval = intervals_[bucket.intervals[n]];
        for (const std::size_t h : interval.holders)
          if (Holder& holder = parameters_[interval.parameter].holders[h];
              holder.share.rank == rank)
            holder.fresh[bucket.intervals[n]] = fresh[n];
      }
    }
  }

  DType parameter_dtype(const SumBucket& bucket) const {
    const Interval& any = intervals_[bucket.intervals.front()];
    const Holder& holder = parameters_[any.parameter].holders.front();
    return step_.stages[holder.share.stage].graph.value(holder.parameter).dtype;
  }

  /// An interval on its owner, updated.
  BufferId updated_rows(const Interval& interval, const std::string& label) {
    const Parameter& parameter = parameters_[interval.parameter];
    const Holder& holder = parameter.holders[interval.owner];
    ProgramBuilder& builder = rank_of(holder.share).builder();
    const BufferId own =
        target_.update(holder.share.stage, holder.share.member).updated(holder.parameter);
    if (interval.begin == holder.own_begin && interval.end == holder.own_begin + holder.own_count)
      return own;
    return builder.make("motley::part",
                        {{own},
                         {parameter.slab.before},
                         {interval.begin - holder.own_begin},
                         {parameter.slab.after}},
                        builder.buffer(own).dtype, rows_of(interval), label);
  }

  Shape rows_of(const Interval& interval) const {
    const Slab& slab = parameters_[interval.parameter].slab;
    return {slab.before, interval.end - interval.begin, slab.after};
  }

  void take_back(std::size_t b) {
    const SumBucket& bucket = buckets_[b];
    if (bucket.has_owners) return take_own(b);
    const std::string label = bucket_label(b);
    std::vector<Shape> shapes;
    for (const std::size_t i : bucket.intervals) {
      const Slab& slab = parameters_[intervals_[i].parameter].slab;
      shapes.push_back({slab.before, intervals_[i].end - intervals_[i].begin, slab.after});
    }
    std::map<std::size_t, std::vector<BufferId>> views;
    std::set<std::pair<std::size_t, std::size_t>> changed;  // stage, member
    for (std::size_t n = 0; n < bucket.intervals.size(); ++n) {
      Interval& interval = intervals_[bucket.intervals[n]];
      Parameter& parameter = parameters_[interval.parameter];
      for (const std::size_t h : interval.holders) {
        Holder& holder = parameter.holders[h];
        const Share& share = holder.share;
        ProgramBuilder& builder = rank_of(share).builder();
        std::vector<BufferId>& here = views[share.rank];
        if (here.empty()) here = builder.unpack(begun_.at({b, share.rank}), shapes, label);
        holder.back[bucket.intervals[n]] = here[n];
        if (h == interval.holders.front()) counted_[share.rank].push_back(here[n]);
        if (holder.back.size() < holder.intervals) continue;
        target_.update(share.stage, share.member)
            .add(holder.parameter, join(holder, parameter, holder.back, label));
        changed.insert({share.stage, share.member});
      }
    }
    for (const auto& [stage, member] : changed) target_.update(stage, member).write(label);
  }

  /// Rows of a holder's, all that it has or own, by interval, as one.
  BufferId join(const Holder& holder, const Parameter& parameter,
                const std::map<std::size_t, BufferId>& pieces_of, const std::string& label) {
    RankStep& rank = rank_of(holder.share);
    ProgramBuilder& builder = rank.builder();
    const Shape local = rank.local_shape(holder.parameter, holder.share.form);
    BufferId joined = pieces_of.begin()->second;
    const DType dtype = builder.buffer(joined).dtype;
    std::int64_t rows = 0;
    for (const auto& [interval, piece] : pieces_of)
      rows += intervals_[interval].end - intervals_[interval].begin;
    if (pieces_of.size() > 1) {
      // Buckets are filled by time: the pieces lie as the intervals do.
      std::map<std::int64_t, BufferId> in_order;
      for (const auto& [interval, piece] : pieces_of) in_order[intervals_[interval].begin] = piece;
      std::vector<BufferId> pieces;
      for (const auto& [begin, piece] : in_order) pieces.push_back(piece);
      joined = builder.make("aten::cat", {{buffer_list(pieces)}, {std::int64_t{1}}}, dtype,
                            {parameter.slab.before, rows, parameter.slab.after}, label);
    }
    const Shape shape =
        rows == holder.end - holder.begin
            ? local
            : flat_shape(local.size(), parameter.slab.before * rows * parameter.slab.after);
    const BufferId seen = builder.add_temporary(dtype, shape, joined);
    builder.compute("aten::view", {{joined}, {integers(shape)}}, {seen}, label);
    return seen;
  }

  const StagedStep& step_;
  const Target target_;
  /// By bucket of the region (-1: none), stage and member: what needs no exchange.
  std::map<std::tuple<int, std::size_t, std::size_t>, std::vector<Share>> alone_;
  std::set<std::tuple<std::size_t, std::size_t, std::int64_t>> counted_alone_;  // and output
  std::map<std::size_t, std::vector<BufferId>> counted_;                        // by rank
  std::vector<Parameter> parameters_;
  std::vector<Interval> intervals_;
  std::vector<SumBucket> buckets_;
  std::vector<Event> events_;  // in order
  std::size_t next_ = 0;       // the first event that is not written
  std::size_t gathered_ = 0;   // buckets whose owners' rows all have
  std::map<std::pair<std::size_t, std::size_t>, BufferId> begun_;  // bucket, rank
};

GradientExchange::GradientExchange(const StagedStep& step, Target target)
    : step_(step), writer_(std::make_unique<Writer>(step, std::move(target))) {}

GradientExchange::~GradientExchange() = default;

void GradientExchange::add(const Share& share) {
  const graph::Graph& graph = step_.stages[share.stage].graph;
  const std::string& name = graph.value(writer_->parameter_of(share)).name;
  std::vector<Share>& shares = shares_[name];
  if (shares.empty()) names_.push_back(name);
  shares.push_back(share);
}

Result<void> GradientExchange::arrange() {
  for (const std::string& name : names_) {
    const std::vector<Share>& shares = shares_.at(name);
    const bool is_alone = std::all_of(shares.begin(), shares.end(), [&](const Share& each) {
      return each.stage == shares.front().stage;
    });
    if (is_alone) {
      writer_->keep(shares);
      continue;
    }
    RankStep& first = writer_->rank_of(shares.front());
    const ValueId any = writer_->parameter_of(shares.front());
    Writer::Parameter parameter{
        {}, {1, first.whole_elements(any), 1}, writer_->dtype_of(shares.front())};
    std::optional<Form> cut;
    for (const Share& share : shares)
      if (share.form.kind == FormKind::kSharded) {
        if (cut && *cut != share.form)
          return usage_error("synth.unsupported",
                             fmt::format("parameter '{}' is kept as {} by one region and as {} by "
                                         "another; regions that share it must cut it alike",
                                         name, print_form(*cut), print_form(share.form)));
        cut = share.form;
      }
    if (cut) parameter.slab = graph::slab_of(first.whole_shape(any), *cut);
    std::map<std::size_t, std::size_t> of_rank;
    std::set<std::size_t> givers;  // regions of which a device gives what all of them have
    for (const Share& share : shares) {
      if (const auto known = of_rank.find(share.rank); known != of_rank.end()) {
        parameter.holders[known->second].further.push_back(share);
        continue;
      }
      Writer::Holder holder{share, writer_->parameter_of(share)};
      const bool is_cut = share.form.kind == FormKind::kSharded;
      holder.is_giver = is_cut || share.is_term || givers.insert(share.stage).second;
      RankStep& rank = writer_->rank_of(share);
      holder.begin = is_cut ? rank.begin(cut->extent) : 0;
      holder.end = is_cut ? holder.begin + rank.own(cut->extent) : parameter.slab.extent;
      if (holder.begin == holder.end) {
        writer_->keep_nothing(share);
        continue;
      }
      of_rank.emplace(share.rank, parameter.holders.size());
      parameter.holders.push_back(std::move(holder));
    }
    if (writer_->find_owners(parameter)) shared_.insert(name);
    writer_->add(std::move(parameter));
  }
  writer_->arrange();
  return {};
}

void GradientExchange::begin(std::int64_t position) { writer_->begin(position); }
void GradientExchange::finish() { writer_->finish(); }
void GradientExchange::give_back() { writer_->give_back(); }
const std::vector<BufferId>& GradientExchange::counted(std::size_t rank) {
  return writer_->counted(rank);
}

}  // namespace motley::synth
