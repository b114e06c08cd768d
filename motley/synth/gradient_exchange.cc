#include "motley/synth/gradient_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "motley/synth/lower_rank.h"

namespace motley::synth {
namespace {

using graph::Form;
using graph::FormKind;
using graph::Slab;
using Share = GradientExchange::Share;
using Target = GradientExchange::Target;

/// What a device has of a parameter, and how its own gradient comes to be the sum of all.
struct Holder {
  Share share;
  bool is_giver = true;             ///< its region's; false: another device of it gives the same
  std::vector<Share> further = {};  ///< of other regions of the same device
  std::int64_t begin = 0, end = 0;  ///< of the extent
  std::size_t intervals = 0;        ///< that it has
  std::map<std::size_t, BufferId> back = {};  ///< of these
};

/// An interval of a parameter, and who has it.
struct Interval {
  std::size_t parameter;
  std::int64_t begin, end;
  std::vector<std::size_t> holders;  ///< positions among the parameter's
};

struct Parameter {
  std::string name;
  std::vector<Holder> holders;
  Slab slab;
  DType dtype = DType::kF32;
};

/// Intervals that the same devices sum together.
struct SumBucket {
  std::vector<std::size_t> ranks;  ///< ascending
  DType dtype = DType::kF32;
  std::vector<std::size_t> intervals;
};

class ExchangeWriter {
 public:
  ExchangeWriter(const Target& target, std::vector<std::vector<BufferId>>& counted)
      : target_(target), counted_(counted) {}

  /// Of one region alone: no exchange.
  void keep(const std::vector<Share>& shares) {
    std::set<std::int64_t> counted;
    for (const Share& share : shares) {
      update_of(share).add(share.parameter, share.gradient);
      const bool is_cut = share.form.kind == FormKind::kSharded;
      if (is_cut || counted.insert(0).second) counted_[share.rank].push_back(share.gradient);
      note(share);
    }
  }

  void add(Parameter parameter) {
    const std::size_t index = parameters_.size();
    std::set<std::int64_t> cuts;
    for (const Holder& holder : parameter.holders) {
      cuts.insert(holder.begin);
      cuts.insert(holder.end);
    }
    for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) {
      Interval interval{index, *cut, *std::next(cut), {}};
      for (std::size_t h = 0; h < parameter.holders.size(); ++h)
        if (parameter.holders[h].begin <= interval.begin &&
            interval.end <= parameter.holders[h].end) {
          interval.holders.push_back(h);
          ++parameter.holders[h].intervals;
        }
      intervals_.push_back(std::move(interval));
    }
    parameters_.push_back(std::move(parameter));
  }

  void run() {
    for (const auto& [stage, member] : touched_) target_.update(stage, member).write("update");
    fill_buckets();
    for (std::size_t b = 0; b < buckets_.size(); ++b) start(b);
    for (std::size_t b = 0; b < buckets_.size(); ++b) finish(b);
  }

 private:
  Update& update_of(const Share& share) { return target_.update(share.stage, share.member); }
  RankStep& rank_of(const Share& share) { return target_.rank(share.stage, share.member); }
  void note(const Share& share) { touched_.insert({share.stage, share.member}); }

  std::int64_t elements(const Interval& interval) const {
    const Slab& slab = parameters_[interval.parameter].slab;
    return slab.before * (interval.end - interval.begin) * slab.after;
  }

  void fill_buckets() {
    std::map<std::pair<std::vector<std::size_t>, DType>, std::size_t> open;
    std::vector<std::int64_t> bytes;
    for (std::size_t i = 0; i < intervals_.size(); ++i) {
      const Parameter& parameter = parameters_[intervals_[i].parameter];
      std::vector<std::size_t> ranks;
      for (const std::size_t h : intervals_[i].holders)
        ranks.push_back(parameter.holders[h].share.rank);
      std::sort(ranks.begin(), ranks.end());
      const std::int64_t size = elements(intervals_[i]) * dtype_size(parameter.dtype);
      const auto [found, is_new] = open.try_emplace({ranks, parameter.dtype}, buckets_.size());
      if (is_new || bytes[found->second] + size > target_.bucket_bytes.value) {
        found->second = buckets_.size();
        buckets_.push_back({ranks, parameter.dtype, {}});
        bytes.push_back(0);
      }
      buckets_[found->second].intervals.push_back(i);
      bytes[found->second] += size;
    }
  }

  /// What a holder has of its own gradient: all its regions' terms together.
  BufferId own_sum(Holder& holder) {
    RankStep& rank = rank_of(holder.share);
    for (const Share& other : std::exchange(holder.further, {})) {
      const program::Buffer about = rank.builder().buffer(holder.share.gradient);
      const BufferId sum = rank.builder().add_temporary(about.dtype, about.shape);
      rank.builder().compute("aten::add.Tensor",
                             {{holder.share.gradient}, {other.gradient}, {std::int64_t{1}}}, {sum},
                             "gradients");
      holder.share.gradient = sum;
    }
    return holder.share.gradient;
  }

  /// Rows of an interval of what a holder has.
  BufferId piece_of(Holder& holder, const Interval& interval, const std::string& label) {
    const Slab& slab = parameters_[interval.parameter].slab;
    RankStep& rank = rank_of(holder.share);
    ProgramBuilder& builder = rank.builder();
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

  void start(std::size_t b) {
    const SumBucket& bucket = buckets_[b];
    const std::string label = bucket_label(b);
    std::map<std::size_t, std::pair<RankStep*, std::vector<BufferId>>> packed;  // by rank
    std::int64_t size = 0;
    for (const std::size_t i : bucket.intervals) {
      size += elements(intervals_[i]);
      for (const std::size_t h : intervals_[i].holders) {
        Holder& holder = parameters_[intervals_[i].parameter].holders[h];
        auto& [rank, pieces] = packed[holder.share.rank];
        rank = &rank_of(holder.share);
        pieces.push_back(piece_of(holder, intervals_[i], label));
      }
    }
    const GroupId group = bucket.ranks.size() > 1 ? target_.group(bucket.ranks) : GroupId();
    for (auto& [number, each] : packed) {
      ProgramBuilder& builder = each.first->builder();
      const BufferId flat =
          builder.make("motley::pack", {{buffer_list(each.second)}}, bucket.dtype, {size}, label);
      if (!group.is_none()) {
        builder.use_group(group);
        builder.all_reduce(flat, label);
      }
      begun_[{b, number}] = flat;
    }
  }

  void finish(std::size_t b) {
    const SumBucket& bucket = buckets_[b];
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
        ProgramBuilder& builder = rank_of(holder.share).builder();
        std::vector<BufferId>& here = views[holder.share.rank];
        if (here.empty()) here = builder.unpack(begun_.at({b, holder.share.rank}), shapes, label);
        holder.back[bucket.intervals[n]] = here[n];
        if (h == interval.holders.front()) counted_[holder.share.rank].push_back(here[n]);
        if (!is_back(holder)) continue;
        update_of(holder.share)
            .add(holder.share.parameter, join(holder, parameter, builder, label));
        changed.insert({holder.share.stage, holder.share.member});
      }
    }
    for (const auto& [stage, member] : changed) target_.update(stage, member).write(label);
  }

  /// Are all intervals back?
  static bool is_back(const Holder& holder) { return holder.back.size() == holder.intervals; }

  static BufferId join(const Holder& holder, const Parameter& parameter, ProgramBuilder& builder,
                       const std::string& label) {
    const Shape shape = builder.buffer(holder.share.gradient).shape;
    BufferId joined = holder.back.begin()->second;
    if (holder.back.size() > 1) {
      const Slab& slab = parameter.slab;
      std::vector<BufferId> pieces;
      for (const auto& [interval, piece] : holder.back) pieces.push_back(piece);
      joined =
          builder.make("aten::cat", {{buffer_list(pieces)}, {std::int64_t{1}}}, parameter.dtype,
                       {slab.before, holder.end - holder.begin, slab.after}, label);
    }
    const BufferId seen = builder.add_temporary(parameter.dtype, shape, joined);
    builder.compute("aten::view", {{joined}, {integers(shape)}}, {seen}, label);
    return seen;
  }

  const Target& target_;
  std::vector<std::vector<BufferId>>& counted_;
  std::vector<Parameter> parameters_;
  std::vector<Interval> intervals_;
  std::vector<SumBucket> buckets_;
  std::map<std::pair<std::size_t, std::size_t>, BufferId> begun_;  // bucket, rank
  std::set<std::pair<std::size_t, std::size_t>> touched_;          // stage, member
};

}  // namespace

void GradientExchange::add(Share share) {
  const std::string& name = step_.stages[share.stage].graph.value(share.parameter).name;
  std::vector<Share>& shares = shares_[name];
  if (shares.empty()) names_.push_back(name);
  shares.push_back(std::move(share));
}

Result<void> GradientExchange::run(const Target& target) {
  ExchangeWriter writer(target, counted_);
  for (const std::string& name : names_) {
    const std::vector<Share>& shares = shares_.at(name);
    const bool is_alone = std::all_of(shares.begin(), shares.end(), [&](const Share& each) {
      return each.stage == shares.front().stage;
    });
    if (is_alone) {
      writer.keep(shares);
      continue;
    }
    RankStep& first = target.rank(shares.front().stage, shares.front().member);
    const Shape shape = first.whole_shape(shares.front().parameter);
    Parameter parameter{name,
                        {},
                        {1, 1, first.whole_elements(shares.front().parameter)},
                        first.builder().buffer(shares.front().gradient).dtype};
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
    if (cut)
      parameter.slab = graph::slab_of(shape, *cut);
    else
      parameter.slab = {1, parameter.slab.after, 1};
    std::map<std::size_t, std::size_t> of_rank;
    std::set<std::size_t> givers;  // regions of which a device gives what all of them have
    for (const Share& share : shares) {
      if (const auto known = of_rank.find(share.rank); known != of_rank.end()) {
        parameter.holders[known->second].further.push_back(share);
        continue;
      }
      Holder holder{share};
      const bool is_cut = share.form.kind == FormKind::kSharded;
      holder.is_giver = is_cut || givers.insert(share.stage).second;
      RankStep& rank = target.rank(share.stage, share.member);
      holder.begin = is_cut ? rank.begin(cut->extent) : 0;
      holder.end = is_cut ? holder.begin + rank.own(cut->extent) : parameter.slab.extent;
      if (holder.begin == holder.end) {  // it has no part
        target.update(share.stage, share.member).add(share.parameter, share.gradient);
        continue;
      }
      of_rank.emplace(share.rank, parameter.holders.size());
      parameter.holders.push_back(std::move(holder));
    }
    writer.add(std::move(parameter));
  }
  writer.run();
  return {};
}

}  // namespace motley::synth
