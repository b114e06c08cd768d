#include "motley/search/stages/costs/mixed_units.h"

#include <algorithm>
#include <map>
#include <set>

namespace motley::search {
namespace {

constexpr std::size_t kMostAtOnce = 4;  // pools, except for all of them

using Pools = std::set<std::size_t>;

/// Chooses sets of a host's pools whose stages are tried.
std::set<Pools> choose_pools(std::vector<std::size_t> pools, const std::vector<double>& speeds) {
  std::set<Pools> chosen = {Pools(pools.begin(), pools.end())};
  if (pools.size() == 3) {
    for (const std::size_t left_out : pools) {
      Pools two(pools.begin(), pools.end());
      two.erase(left_out);
      chosen.insert(two);
    }
    return chosen;
  }
  std::stable_sort(pools.begin(), pools.end(),
                   [&](std::size_t a, std::size_t b) { return speeds[a] > speeds[b]; });
  for (std::size_t count = 2; count <= std::min(pools.size(), kMostAtOnce); ++count)
    chosen.emplace(pools.begin(), pools.begin() + static_cast<std::ptrdiff_t>(count));
  return chosen;
}

}  // namespace

std::vector<StageUnit> find_mixed_units(const std::vector<DevicePool>& pools,
                                        const std::vector<double>& speeds) {
  std::map<std::pair<int, int>, std::vector<std::size_t>> by_hosts;  // first host, hosts
  for (std::size_t pool = 0; pool < pools.size(); ++pool)
    if (pools[pool].devices == pools[pool].hosts() * pools[pool].per_host)
      by_hosts[{pools[pool].first_host, pools[pool].hosts()}].push_back(pool);
  std::vector<StageUnit> units;
  for (const auto& [hosts, together] : by_hosts) {
    if (together.size() < 2) continue;
    for (const Pools& chosen : choose_pools(together, speeds)) {
      std::vector<UnitPart> parts;
      for (const std::size_t pool : chosen) parts.push_back({pool, pools[pool].per_host});
      for (bool is_whole = true; is_whole;) {
        units.emplace_back(parts);
        for (UnitPart& part : parts) {
          is_whole = is_whole && part.devices % 2 == 0;
          part.devices /= 2;
        }
      }
    }
  }
  return units;
}

}  // namespace motley::search
