#include "motley/search/stages/shapes/zones.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "motley/search/stages/costs/merged_layers.h"
#include "motley/search/stages/shapes/sample_bound.h"

namespace motley::search {
namespace {

constexpr double kFaster = 2;            // ratio of rates inside a zone and between zones
constexpr std::size_t kMostOrdered = 7;  // zones whose orders are all tried

/// Returns the rate in bytes per second between whole hosts of two pools or of one; infinite for a
/// single host or the same hosts, 0 without a link.
std::vector<std::vector<double>> find_rates(const StageCosts& costs, Bytes message) {
  const std::vector<DevicePool>& pools = costs.pools();
  const auto rate = [&](std::size_t from, std::size_t to) {
    const auto hop = costs.hop({from, pools[from].per_host}, {to, pools[to].per_host},
                               HopReach::kOtherHost, message);
    return hop ? hop->rate.value : 0;
  };
  std::vector<std::vector<double>> rates(
      pools.size(), std::vector<double>(pools.size(), std::numeric_limits<double>::infinity()));
  for (std::size_t a = 0; a < pools.size(); ++a)
    for (std::size_t b = 0; b <= a; ++b)
      if (a == b ? pools[a].hosts() > 1 : !pools[a].shares_hosts(pools[b]))
        rates[a][b] = rates[b][a] = std::min(rate(a, b), rate(b, a));
  return rates;
}

/// Numbers the zones by pool: links at least `kFaster` times the slowest join pools. Returns empty
/// if hosts of one zone have slower links.
std::vector<std::size_t> number_zones(const std::vector<std::vector<double>>& rates) {
  double slowest = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& of : rates)
    slowest = std::min(slowest, *std::min_element(of.begin(), of.end()));
  const auto are_near = [&](std::size_t a, std::size_t b) {
    return rates[a][b] > 0 && rates[a][b] >= kFaster * slowest;
  };
  std::vector<std::size_t> zone_of, first_of;
  for (std::size_t pool = 0; pool < rates.size(); ++pool) {
    const auto zone = std::find_if(first_of.begin(), first_of.end(),
                                   [&](std::size_t first) { return are_near(first, pool); });
    zone_of.push_back(static_cast<std::size_t>(zone - first_of.begin()));
    if (zone == first_of.end()) first_of.push_back(pool);
  }
  for (std::size_t a = 0; a < rates.size(); ++a)
    for (std::size_t b = 0; b <= a; ++b)
      if (zone_of[a] == zone_of[b] && !are_near(a, b)) return {};
  return zone_of;
}

/// Returns [zone][zone]: the fastest link between pools of two zones.
std::vector<std::vector<double>> join_rates(const std::vector<std::vector<double>>& rates,
                                            const std::vector<std::size_t>& zone_of,
                                            std::size_t zones) {
  std::vector<std::vector<double>> joined(zones, std::vector<double>(zones, 0));
  for (std::size_t a = 0; a < rates.size(); ++a)
    for (std::size_t b = 0; b < rates.size(); ++b)
      if (zone_of[a] != zone_of[b])
        joined[zone_of[a]][zone_of[b]] = std::max(joined[zone_of[a]][zone_of[b]], rates[a][b]);
  return joined;
}

/// Returns the order whose slowest link between neighbours is fastest; absent if there is none.
std::optional<std::vector<std::size_t>> order_zones(const std::vector<std::vector<double>>& rates) {
  std::vector<std::size_t> order(rates.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto slowest = [&] {
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i + 1 < order.size(); ++i)
      least = std::min(least, rates[order[i]][order[i + 1]]);
    return least;
  };
  double fastest = slowest();
  std::vector<std::size_t> best = order;
  while (order.size() <= kMostOrdered && std::next_permutation(order.begin(), order.end()))
    if (const double rate = slowest(); rate > fastest) {
      fastest = rate;
      best = order;
    }
  return fastest > 0 ? std::optional(best) : std::nullopt;
}

/// Cuts layers in proportion to `weights`, at least one layer each.
std::vector<std::size_t> cut_layers(const StageCosts& costs, const std::vector<double>& weights) {
  const std::vector<double> sums = sum_layers(costs);
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  double share = 0;
  std::vector<std::size_t> cuts = {0};
  for (std::size_t i = 0; i + 1 < weights.size(); ++i) {
    share += weights[i] / all;
    const double wanted = share * sums.back();
    std::size_t cut = cuts.back() + 1;
    while (cut < costs.layers() && std::abs(sums[cut + 1] - wanted) < std::abs(sums[cut] - wanted))
      ++cut;
    cuts.push_back(std::min(cut, costs.layers() - (weights.size() - 1 - i)));
  }
  cuts.push_back(costs.layers());
  return cuts;
}

}  // namespace

std::optional<std::vector<LayerStretch>> find_zone_stretches(const StageCosts& costs) {
  if (costs.units().empty()) return std::nullopt;
  const std::vector<DevicePool>& pools = costs.pools();
  const auto rates = find_rates(costs, costs.bytes(0)[(costs.layers() - 1) / 2].output);
  const std::vector<std::size_t> zone_of = number_zones(rates);
  if (zone_of.empty()) return std::nullopt;
  const std::size_t zones = *std::max_element(zone_of.begin(), zone_of.end()) + 1;
  if (zones < 2 || zones > costs.layers()) return std::nullopt;
  const std::vector<double> device_speeds = device_rates(StageSums(costs));
  std::vector<double> speeds(zones);
  std::vector<std::set<int>> hosts(zones);
  for (std::size_t pool = 0; pool < pools.size(); ++pool) {
    speeds[zone_of[pool]] += device_speeds[pool] * pools[pool].devices;
    for (int host = 0; host < pools[pool].hosts(); ++host)
      hosts[zone_of[pool]].insert(pools[pool].first_host + host);
  }
  for (std::size_t zone = 0; zone < zones; ++zone)
    if (hosts[zone].size() < 2 || speeds[zone] <= 0) return std::nullopt;
  const auto order = order_zones(join_rates(rates, zone_of, zones));
  if (!order) return std::nullopt;
  std::vector<double> weights;
  for (const std::size_t zone : *order) weights.push_back(speeds[zone]);
  const std::vector<std::size_t> cuts = cut_layers(costs, weights);
  std::vector<LayerStretch> of_zone(zones);
  for (std::size_t i = 0; i < zones; ++i) of_zone[(*order)[i]] = {cuts[i], cuts[i + 1]};
  std::vector<LayerStretch> stretches;
  for (const std::size_t zone : zone_of) stretches.push_back(of_zone[zone]);
  return stretches;
}

}  // namespace motley::search
