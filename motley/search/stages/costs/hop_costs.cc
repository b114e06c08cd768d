#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "motley/cluster/kinds.h"
#include "motley/search/stages/costs/layer_stage_costs.h"

namespace motley::search {
namespace {

class FittedHops : public HopCosts {
 public:
  FittedHops(const cost::StageNetwork& network, const std::vector<DevicePool>& pools)
      : network_(network), pools_(pools) {}

  std::optional<Hop> hop(HopEnd from, HopEnd to, HopReach reach, Bytes bytes) const override {
    const int parts = std::min(from.devices, to.devices);
    const std::optional<double> seconds = reach == HopReach::kSameHost
                                              ? inside(from, to, parts, bytes)
                                              : between(from, to, parts, bytes);
    if (!seconds) return std::nullopt;
    return Hop{Seconds(0), BytesPerSecond(static_cast<double>(bytes.value) / *seconds)};
  }

  BytesPerSecond host_rate(std::size_t pool) const override {
    double best = 0;
    for (const auto& [kinds, curves] : network_.between)
      if (kinds.first == pools_[pool].kind || kinds.second == pools_[pool].kind)
        for (const auto& [devices, curve] : curves) best = std::max(best, curve.peak.value);
    return BytesPerSecond(best);
  }

 private:
  static std::optional<double> seconds(const cost::RateCurves& curves, int devices, double messages,
                                       int parts, Bytes bytes) {
    if (curves.empty()) return std::nullopt;
    const auto above = curves.upper_bound(devices);
    const Bytes part((bytes.value + parts - 1) / parts);
    if (above == curves.begin()) {
      // Fewer devices send than measured: each at its share.
      const double at_once = messages * above->first / devices;
      return cost::transfer_time(above->second, part, at_once).value;
    }
    return cost::transfer_time(std::prev(above)->second, part, parts).value;
  }
  std::optional<double> between(HopEnd from, HopEnd to, int parts, Bytes bytes) const {
    const auto found = network_.between.find({pools_[from.pool].kind, pools_[to.pool].kind});
    if (found == network_.between.end()) return std::nullopt;
    return seconds(found->second, parts, parts, parts, bytes);
  }
  /// Each pair of devices exchanges, so there are half as many messages as devices.
  std::optional<double> inside(HopEnd from, HopEnd to, int parts, Bytes bytes) const {
    std::optional<double> slowest;
    for (const std::size_t pool : {from.pool, to.pool}) {
      const auto found = network_.inside.find(pools_[pool].kind);
      if (found == network_.inside.end()) return std::nullopt;
      const auto time = seconds(found->second, 2 * parts, parts, parts, bytes);
      if (!time) return std::nullopt;
      slowest = std::max(slowest.value_or(0), *time);
    }
    return slowest;
  }

  cost::StageNetwork network_;
  std::vector<DevicePool> pools_;
};

/// Hops by the cluster's links; looks up routes once for each pair of pools.
class ClusterHops : public HopCosts {
 public:
  ClusterHops(const cluster::Cluster& cluster, const ClusterPools& pools) {
    const std::size_t count = pools.pools.size();
    host_rates_.assign(count, 0);
    for (std::size_t a = 0; a < count; ++a) {
      inside_.push_back(inside_rate(pools.pools[a].kind));
      for (std::size_t b = 0; b < count; ++b) {
        other_.push_back(find_route(cluster, pools, a, b));
        if (other_.back())
          host_rates_[a] = std::max(host_rates_[a], other_.back()->bandwidth.value);
        same_.push_back(find_local(cluster, pools, a, b));
      }
    }
    count_ = count;
  }

  std::optional<Hop> hop(HopEnd from, HopEnd to, HopReach reach, Bytes) const override {
    const int parts = std::min(from.devices, to.devices);
    const double local = std::min(inside_[from.pool], inside_[to.pool]);
    Hop hop;
    if (reach == HopReach::kSameHost) {
      const auto& link = same_[from.pool * count_ + to.pool];
      if (link)
        hop = {link->latency, link->bandwidth};
      else if (local > 0)
        hop = {Seconds(0), BytesPerSecond(local * parts)};
      else
        return std::nullopt;
    } else {
      const auto& route = other_[from.pool * count_ + to.pool];
      if (!route) return std::nullopt;
      hop = {route->latency, route->bandwidth};
    }
    return hop;
  }
  BytesPerSecond host_rate(std::size_t pool) const override {
    return BytesPerSecond(host_rates_[pool]);
  }

 private:
  using Route = std::optional<cluster::Route>;

  /// Returns the nominal rate, each way; 0: unknown.
  static double inside_rate(const std::string& name) {
    const auto kind = cluster::find_kind(name);
    if (!kind) return 0;
    if (kind->peer_bandwidth) return kind->peer_bandwidth->value;
    return kind->host_bandwidth ? kind->host_bandwidth->value : 0;
  }
  /// Returns the route between hosts: from a pool's first device to another host's.
  static Route find_route(const cluster::Cluster& cluster, const ClusterPools& pools, std::size_t a,
                          std::size_t b) {
    const DeviceId from = pools.devices[a].front();
    for (const DeviceId to : {pools.devices[b].back(), pools.devices[b].front()}) {
      for (const DeviceId start : {from, pools.devices[a].back()})
        if (cluster.device(start).node != cluster.device(to).node)
          return cluster::group_route(cluster, {start, to});
    }
    return std::nullopt;
  }
  static Route find_local(const cluster::Cluster& cluster, const ClusterPools& pools, std::size_t a,
                          std::size_t b) {
    for (const DeviceId from : pools.devices[a])
      for (const DeviceId to : pools.devices[b]) {
        if (from == to) continue;
        if (cluster.device(from).node != cluster.device(to).node) break;
        return cluster::group_route(cluster, {from, to});
      }
    return std::nullopt;
  }

  std::size_t count_ = 0;
  std::vector<Route> other_, same_;  // [from][to]
  std::vector<double> inside_, host_rates_;
};

}  // namespace

std::unique_ptr<HopCosts> fitted_hops(const cost::StageNetwork& network,
                                      const std::vector<DevicePool>& pools) {
  return std::make_unique<FittedHops>(network, pools);
}

std::unique_ptr<HopCosts> cluster_hops(const cluster::Cluster& cluster, const ClusterPools& pools) {
  return std::make_unique<ClusterHops>(cluster, pools);
}

}  // namespace motley::search
