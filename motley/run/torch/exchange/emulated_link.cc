#include "motley/run/torch/exchange/emulated_link.h"

#include <algorithm>
#include <cmath>

namespace motley::run {

std::int64_t EmulatedLink::all_reduce_ns(int ranks, std::int64_t bytes) const {
  return exchange_ns(ranks, 2.0 * (ranks - 1) / ranks * static_cast<double>(bytes));
}

std::int64_t EmulatedLink::exchange_ns(int ranks, double bytes) const {
  if (ranks < 2) return 0;
  return std::llround((latency_s + (rate > 0 ? bytes / rate : 0)) * 1e9);
}

EmulatedLink group_link(const std::vector<WorkerDevice>& devices, const std::vector<int>& members) {
  EmulatedLink link;
  for (const int rank : members) {
    const WorkerDevice& device = devices[static_cast<std::size_t>(rank)];
    if (device.rate) link.rate = link.rate == 0 ? *device.rate : std::min(link.rate, *device.rate);
    if (device.latency) link.latency_s = std::max(link.latency_s, *device.latency);
  }
  return link;
}

}  // namespace motley::run
