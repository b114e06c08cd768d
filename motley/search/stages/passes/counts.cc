#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "motley/search/stages/passes/improvers.h"

namespace motley::search {
namespace {

constexpr std::size_t kClimbs = 6;          // mixes from which other counts are tried
constexpr std::int64_t kMostClimbed = 400;  // mixes tried in all: each costs a simulated collective
constexpr double kSmallestClimb = 1e-3;     // of the expected step, that is an improvement

/// The mix with `count` of a part and, of another part, as many fewer as that takes devices or as
/// many more as it leaves; absent if that cannot be.
std::optional<ReplicaMix> with_count(const SearchSpace& space, ReplicaMix mix, std::size_t part,
                                     int count, std::size_t other) {
  mix.parts[part].second = count;
  std::vector<int> left = space.devices;
  for (const auto& [shape, replicas] : mix.parts) {
    const std::vector<int> devices = space.ringed.devices(shape);
    for (std::size_t p = 0; p < left.size(); ++p) left[p] -= replicas * devices[p];
  }
  const std::vector<int> each = space.ringed.devices(mix.parts[other].first);
  int more = mix.parts[other].second + std::accumulate(left.begin(), left.end(), 0);
  for (std::size_t p = 0; p < left.size(); ++p)
    if (each[p] > 0)
      more = std::min(more, left[p] / each[p] - (left[p] % each[p] < 0 ? 1 : 0));
    else if (left[p] < 0)
      return std::nullopt;
  mix.parts[other].second += more;
  if (mix.parts[other].second < 0) return std::nullopt;
  std::erase_if(mix.parts, [](const auto& each_part) { return each_part.second == 0; });
  std::sort(mix.parts.begin(), mix.parts.end());
  return mix.parts.empty() ? std::nullopt : std::optional(std::move(mix));
}

class CountClimb {
 public:
  CountClimb(const SearchSpace& space, const ShapeEstimates& estimates, const RankedMixes& ranked)
      : space_(space), estimates_(estimates) {
    for (const RankedMix& each : ranked) seen_.insert(each.mix);
    for (std::size_t k = 0; k < std::min(ranked.size(), 2 * kClimbs); ++k)
      for (const auto& [shape, count] : ranked[k].mix.parts) shapes_.insert(shape);
  }

  RankedMix climb(RankedMix now) {
    while (left_ > 0 && move(now)) continue;
    return now;
  }

 private:
  /// Through all counts once; false: none is better.
  bool move(RankedMix& now) {
    ReplicaMix from = now.mix;
    for (const ReplicaShape& shape : shapes_)
      if (std::none_of(from.parts.begin(), from.parts.end(),
                       [&](const auto& part) { return part.first == shape; }))
        from.parts.emplace_back(shape, 0);
    bool has_moved = false;
    for (std::size_t part = 0; part < from.parts.size(); ++part) {
      const auto& [shape, count] = from.parts[part];
      const int fill = space_.fills_host(shape);
      for (const int tried : std::set<int>{0, count - fill, count - 1, count + 1, count + fill})
        for (std::size_t other = 0; other < from.parts.size() && tried >= 0; ++other) {
          if (other == part || left_ <= 0) continue;
          auto changed = with_count(space_, from, part, tried, other);
          if (!changed || !seen_.insert(*changed).second) continue;
          --left_;
          const double seconds = estimates_.expected_step(*changed);
          if (seconds >= now.seconds * (1 - kSmallestClimb)) continue;
          now = {seconds, *std::move(changed)};
          has_moved = true;
        }
    }
    return has_moved;
  }

  const SearchSpace& space_;
  const ShapeEstimates& estimates_;
  std::set<ReplicaMix> seen_;
  std::set<ReplicaShape> shapes_;  // of the fastest mixes
  std::int64_t left_ = kMostClimbed;
};

}  // namespace

Result<void> change_counts(const SearchSpace& space, ShapeEstimates& estimates,
                           RankedMixes& ranked) {
  CountClimb climb(space, estimates, ranked);
  RankedMixes found;
  for (std::size_t k = 0; k < std::min(ranked.size(), kClimbs); ++k) {
    RankedMix now = climb.climb(ranked[k]);
    if (now.seconds < ranked[k].seconds) found.push_back(std::move(now));
  }
  ranked.insert(ranked.end(), found.begin(), found.end());
  sort_mixes(ranked);
  return {};
}

}  // namespace motley::search
