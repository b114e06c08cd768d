#include "motley/run/torch/lanes/streams.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace motley::run {

namespace {

c10::impl::VirtualGuardImpl guard(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type());
}

}  // namespace

Streams::Streams(c10::Device device, std::size_t instructions)
    : device_(device), first_(current()) {
  events_.reserve(instructions);
  for (std::size_t i = 0; i < instructions; ++i)
    events_.emplace_back(device.type(), c10::EventFlag::BACKEND_DEFAULT);
}

void Streams::use_own_stream() {
  guard(device_).setDevice(device_);
  guard(device_).exchangeStream(guard(device_).getStreamFromGlobalPool(device_));
}

void Streams::hand_over(const at::Tensor& tensor) const {
  if (tensor.numel() > 0) tensor.record_stream(first_);
}

void Streams::mark(int id) { events_[static_cast<std::size_t>(id)].record(current()); }

void Streams::wait_for(int id) const { events_[static_cast<std::size_t>(id)].block(current()); }

void Streams::synchronize() const { current().synchronize(); }

std::int64_t Streams::between(int a, int b) const {
  const double ms =
      events_[static_cast<std::size_t>(a)].elapsedTime(events_[static_cast<std::size_t>(b)]);
  return static_cast<std::int64_t>(ms * 1e6);
}

c10::Stream Streams::current() const { return guard(device_).getStream(device_); }

void reset_device_peak(c10::Device device) {
  c10::getDeviceAllocator(device.type())->resetPeakStats(device.index());
}

std::int64_t device_peak(c10::Device device) {
  const auto stats = c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  return stats.allocated_bytes[0].peak;  // 0: all pools together
}

}  // namespace motley::run
