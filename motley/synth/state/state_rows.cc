#include "motley/synth/state/state_rows.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace motley::synth {

std::optional<std::vector<std::pair<std::int64_t, std::int64_t>>> share_rows(
    const std::vector<OwnerRows>& holders, std::int64_t extent) {
  std::vector<std::size_t> order(holders.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(holders[a].begin, holders[a].end) <
           std::pair(holders[b].begin, holders[b].end);
  });
  double left = 0;  // shares of the remaining holders
  for (const OwnerRows& holder : holders) left += holder.share;
  std::vector<std::pair<std::int64_t, std::int64_t>> owned(holders.size(), {0, 0});
  std::int64_t at = 0;  // begin of the next range
  for (std::size_t i = 0; i < order.size(); ++i) {
    const OwnerRows& holder = holders[order[i]];
    // All rows before the next holder's first row must have an owner.
    std::int64_t next = extent;
    for (std::size_t later = i + 1; later < order.size(); ++later)
      if (holders[order[later]].end > at) next = std::min(next, holders[order[later]].begin);
    const double part = left > 0 ? holder.share / left : 0;
    left -= holder.share;
    const std::int64_t wanted = at + std::llround(part * static_cast<double>(extent - at));
    const std::int64_t end = std::min(holder.end, std::max({at, wanted, next}));
    if (holder.begin > at && end > at) return std::nullopt;
    owned[order[i]] = {at, std::max<std::int64_t>(0, end - at)};
    at = std::max(at, end);
  }
  if (at != extent) return std::nullopt;
  return owned;
}

}  // namespace motley::synth
