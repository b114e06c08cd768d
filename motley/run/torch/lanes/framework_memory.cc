#include "motley/run/torch/lanes/framework_memory.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <cmath>

#include "motley/cluster/framework.h"

namespace motley::run {

namespace {

Bytes at_least_none(Bytes bytes) { return std::max(bytes, Bytes(0)); }

}  // namespace

void prepare_device_use(c10::Device device) {
  c10::DeviceAllocator* allocator = c10::getDeviceAllocator(device.type());
  allocator->emptyCache();
  allocator->resetPeakStats(device.index());
}

DeviceUse read_device_use(c10::Device device) {
  c10::DeviceAllocator* allocator = c10::getDeviceAllocator(device.type());
  const auto stats = allocator->getDeviceStats(device.index());
  const auto [free, total] = allocator->getMemoryInfo(device.index());
  // 0: all pools together
  const auto &reserved = stats.reserved_bytes[0], &allocated = stats.allocated_bytes[0];
  return {Bytes(static_cast<std::int64_t>(total)),
          Bytes(static_cast<std::int64_t>(free)),
          Bytes(reserved.current),
          Bytes(allocated.current),
          Bytes(reserved.peak),
          Bytes(allocated.peak)};
}

std::vector<OpTime> framework_times(const DeviceUse& use) {
  constexpr std::int64_t kLargeStep = std::int64_t{256} << 20;
  const Bytes workspaces = use.allocated;
  const Bytes tensors = at_least_none(use.allocated_peak - workspaces);
  const Bytes unused = at_least_none(use.reserved_peak - use.allocated_peak);
  OpTime context, reserve;
  context.key = cluster::kContextKey;
  context.samples = 1;
  context.scratch = at_least_none(use.total - use.free - use.reserved) + workspaces;
  if (tensors.value < kLargeStep) {
    context.scratch = context.scratch + unused;
    return {context};
  }
  reserve.key = cluster::kReserveKey;
  reserve.samples = 1;
  reserve.scratch = Bytes(std::llround(unused / tensors * cluster::kReserveUnit));
  return {context, reserve};
}

}  // namespace motley::run
