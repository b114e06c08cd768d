#include "motley/synth/stages/gradient_sums.h"

#include <algorithm>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

namespace motley::synth {
namespace {

/// Are all rows of an interval among [first, last)?
bool has_rows(std::int64_t first, std::int64_t last, const GradientInterval& interval) {
  return first <= interval.begin && interval.end <= last;
}

void cut_gradient(std::size_t index, GradientSums& sums) {
  const std::vector<GradientHolder>& holders = sums.gradients[index].holders;
  std::set<std::int64_t> cuts;
  for (const GradientHolder& each : holders) {
    cuts.insert({each.begin, each.end});
    if (each.own_count > 0) cuts.insert({each.own_begin, each.own_begin + each.own_count});
  }
  for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) {
    GradientInterval interval{index, *cut, *std::next(cut)};
    for (std::size_t h = 0; h < holders.size(); ++h) {
      const GradientHolder& holder = holders[h];
      if (!has_rows(holder.begin, holder.end, interval)) continue;
      if (interval.holders.empty()) interval.first = holder.share.rank;
      interval.holders.emplace(holder.share.rank, h);
      if (has_rows(holder.own_begin, holder.own_begin + holder.own_count, interval))
        interval.owner = holder.share.rank;
    }
    sums.intervals.push_back(std::move(interval));
  }
}

void order_intervals(GradientSums& sums) {
  const auto ready = [&](const GradientInterval& interval) {
    std::int64_t last = 0;
    for (const auto& [rank, h] : interval.holders)
      last = std::max(last, sums.gradients[interval.gradient].holders[h].ready());
    return last;
  };
  std::stable_sort(sums.intervals.begin(), sums.intervals.end(),
                   [&](const auto& a, const auto& b) { return ready(a) < ready(b); });
}

void fill_buckets(Bytes bucket_bytes, GradientSums& sums) {
  std::map<std::tuple<std::vector<std::size_t>, DType, bool>, std::size_t> open;
  for (std::size_t i = 0; i < sums.intervals.size(); ++i) {
    const SharedGradient& gradient = sums.gradients[sums.intervals[i].gradient];
    std::vector<std::size_t> ranks;
    for (const auto& [rank, holder] : sums.intervals[i].holders) ranks.push_back(rank);
    const std::int64_t size = sums.elements(i) * dtype_size(gradient.dtype);
    const auto [found, is_new] =
        open.try_emplace({ranks, gradient.dtype, gradient.has_owners}, sums.buckets.size());
    if (is_new || sums.buckets[found->second].bytes + size > bucket_bytes.value) {
      found->second = sums.buckets.size();
      sums.buckets.push_back({ranks, gradient.dtype, gradient.has_owners});
    }
    sums.buckets[found->second].intervals.push_back(i);
    sums.buckets[found->second].bytes += size;
  }
  for (SumBucket& bucket : sums.buckets)
    if (bucket.has_owners)
      std::stable_sort(bucket.intervals.begin(), bucket.intervals.end(),
                       [&](std::size_t a, std::size_t b) {
                         return sums.intervals[a].owner < sums.intervals[b].owner;
                       });
}

void find_times(const SumOptions& options, const GradientSums& sums, SumBucket& bucket) {
  for (const std::size_t i : bucket.intervals)
    for (const auto& [rank, h] : sums.intervals[i].holders) {
      const GradientHolder& holder = sums.gradients[sums.intervals[i].gradient].holders[h];
      std::int64_t& last = bucket.packed[rank];
      last = std::max(last, holder.ready());
      const double rate = options.step.stages[holder.share.stage].rate;
      if (rate > 0) bucket.rate = bucket.rate > 0 ? std::min(bucket.rate, rate) : rate;
    }
  for (const auto& [rank, position] : bucket.packed)
    bucket.begins = std::max({bucket.begins, position, options.busy_until(rank)});
}

void order_sums(const std::vector<double>& times, std::vector<SumBucket>& buckets) {
  std::stable_sort(buckets.begin(), buckets.end(),
                   [](const SumBucket& a, const SumBucket& b) { return a.begins < b.begins; });
  std::map<std::size_t, double> free;  // by rank: from when on
  const auto earliest = [&](std::size_t b) {
    const auto at = static_cast<std::size_t>(buckets[b].begins);
    double time = times.empty() ? 0 : times[std::min(at, times.size() - 1)];
    for (const std::size_t rank : buckets[b].ranks) time = std::max(time, free[rank]);
    return time;
  };
  using Next = std::pair<double, std::size_t>;
  std::priority_queue<Next, std::vector<Next>, std::greater<>> left;
  for (std::size_t b = 0; b < buckets.size(); ++b) left.emplace(earliest(b), b);
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
    SumBucket& bucket = buckets[b];
    // What goes out of a holder comes back.
    const double takes = bucket.rate > 0 ? 2 * static_cast<double>(bucket.bytes) / bucket.rate : 0;
    for (const std::size_t rank : bucket.ranks) free[rank] = time + takes;
    position = bucket.begins = std::max(position, bucket.begins);
    ordered.push_back(std::move(bucket));
  }
  buckets = std::move(ordered);
}

}  // namespace

std::int64_t GradientHolder::ready() const {
  std::int64_t last = share.ready;
  for (const GradientShare& other : further) last = std::max(last, other.ready);
  return last;
}

Shape GradientSums::rows_of(std::size_t interval) const {
  const GradientInterval& about = intervals[interval];
  const graph::Slab& slab = gradients[about.gradient].slab;
  return {slab.before, about.end - about.begin, slab.after};
}

std::int64_t GradientSums::elements(std::size_t interval) const {
  const Shape rows = rows_of(interval);
  return rows[0] * rows[1] * rows[2];
}

Shape GradientSums::owned_elements(const SumBucket& bucket) const {
  Shape counts;
  for (const std::size_t rank : bucket.ranks) {
    std::int64_t& count = counts.emplace_back(0);
    for (const std::size_t i : bucket.intervals)
      if (intervals[i].owner == rank) count += elements(i);
  }
  return counts;
}

GradientSums find_gradient_sums(std::vector<SharedGradient> gradients, const SumOptions& options) {
  GradientSums sums{std::move(gradients)};
  for (std::size_t g = 0; g < sums.gradients.size(); ++g) cut_gradient(g, sums);
  order_intervals(sums);
  fill_buckets(options.bucket_bytes, sums);
  for (SumBucket& bucket : sums.buckets) find_times(options, sums, bucket);
  order_sums(options.step.times, sums.buckets);
  return sums;
}

}  // namespace motley::synth
