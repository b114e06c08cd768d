#include "motley/search/model_stages/send_times.h"

#include <algorithm>
#include <string>
#include <vector>

namespace motley::search {

std::optional<Hop> SendTimes::hop(std::size_t from, std::size_t to, HopReach reach,
                                  Bytes bytes) const {
  const auto [known, is_new] = hops_.try_emplace({from, to, reach, bytes.value});
  if (is_new) known->second = find(from, to, reach, bytes);
  return known->second;
}

std::optional<Hop> SendTimes::find(std::size_t from, std::size_t to, HopReach reach,
                                   Bytes bytes) const {
  constexpr Bytes kLeast{4}, kMore{8};
  const auto ends = find_ends(from, to, reach);
  if (!ends) return std::nullopt;
  const cluster::Cluster& cluster = *programs_.units().problem().cluster;
  const std::vector<std::string> names = {cluster.device(ends->first).name,
                                          cluster.device(ends->second).name};
  const auto least = programs_.model().collective_time("motley::send", kLeast, names);
  const auto all = programs_.model().collective_time("motley::send", std::max(bytes, kMore), names);
  if (!least || !all) return std::nullopt;
  const double moving = std::max(all->value - least->value, 1e-12);
  return Hop{*least, BytesPerSecond(static_cast<double>(std::max(bytes, kMore).value) / moving)};
}

/// The first or last device of a pool, or two others of one host.
std::optional<std::pair<DeviceId, DeviceId>> SendTimes::find_ends(std::size_t from, std::size_t to,
                                                                  HopReach reach) const {
  const ModelUnits& units = programs_.units();
  const cluster::Cluster& cluster = *units.problem().cluster;
  const std::vector<DeviceId>&senders = units.devices_of(from), &receivers = units.devices_of(to);
  const auto is_so = [&](DeviceId a, DeviceId b) {
    const bool is_same = cluster.device(a).node == cluster.device(b).node;
    return a != b && is_same == (reach == HopReach::kSameHost);
  };
  for (const DeviceId a : {senders.front(), senders.back()})
    for (const DeviceId b : {receivers.back(), receivers.front()})
      if (is_so(a, b)) return std::pair(a, b);
  if (reach == HopReach::kSameHost)
    for (const DeviceId a : senders)
      for (const DeviceId b : receivers)
        if (is_so(a, b)) return std::pair(a, b);
  return std::nullopt;
}

/// Where there are none, nothing leaves a host.
BytesPerSecond SendTimes::host_rate(std::size_t pool) const {
  constexpr Bytes kLarge{64 << 20};
  double best = 0;
  for (std::size_t other = 0; other < programs_.units().pools().size(); ++other)
    for (const auto& each : {hop(pool, other, HopReach::kOtherHost, kLarge),
                             hop(other, pool, HopReach::kOtherHost, kLarge)})
      if (each) best = std::max(best, each->rate.value);
  return BytesPerSecond(best > 0 ? best : 1e15);
}

}  // namespace motley::search
