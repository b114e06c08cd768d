#include <algorithm>
#include <array>

#include "motley/search/stages/passes/whole_mixes.h"

namespace motley::search {
namespace {

constexpr std::size_t kMostBundled = 12;  // shapes that are paired: their pairs are offers, too

/// Replicas whose first stages fill a host.
struct Bundle {
  std::array<std::size_t, 2> shapes;
  std::array<int, 2> counts;
};

}  // namespace

std::vector<int> choose_bundles(const SearchSpace& space, const std::vector<ReplicaShape>& shapes,
                                const std::vector<ShapeOffer>& offers) {
  std::vector<Bundle> bundles;
  for (std::size_t a = 0; a < shapes.size(); ++a) {
    const int fill = space.fills_host(shapes[a]);
    bundles.push_back({{a, a}, {fill, 0}});
    if (fill % 2 != 0) continue;
    for (std::size_t b = a + 1; b < std::min(shapes.size(), kMostBundled); ++b)
      if (shapes[b].stages.front().unit == shapes[a].stages.front().unit)
        bundles.push_back({{a, b}, {fill / 2, fill / 2}});
  }
  std::vector<ShapeOffer> bundled;
  for (const auto& [of, counts] : bundles) {
    ShapeOffer& sum = bundled.emplace_back(ShapeOffer{0, std::vector<int>(space.devices.size())});
    for (std::size_t half = 0; half < of.size(); ++half) {
      sum.samples += counts[half] * offers[of[half]].samples;
      for (std::size_t p = 0; p < sum.devices.size(); ++p)
        sum.devices[p] += counts[half] * offers[of[half]].devices[p];
    }
  }
  const std::vector<int> chosen = choose_replicas(bundled, space.devices);
  std::vector<int> counts(shapes.size());
  for (std::size_t i = 0; i < chosen.size(); ++i)
    for (std::size_t half = 0; half < 2; ++half)
      counts[bundles[i].shapes[half]] += chosen[i] * bundles[i].counts[half];
  return counts;
}

}  // namespace motley::search
