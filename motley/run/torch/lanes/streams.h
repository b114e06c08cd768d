#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <vector>

namespace motley::run {

/// Order and time on a device that works asynchronously (CUDA): an event for each instruction that
/// somebody waits for or that is timed. Uses PyTorch's device-neutral interface, no CUDA header.
class Streams {
 public:
  /// Room for `instructions` events.
  Streams(c10::Device device, std::size_t instructions);
  /// Gives the calling thread a stream of its own, so that its work overlaps with that of others.
  void use_own_stream();
  /// A tensor made in this thread's stream is used in the one of the thread that made this object:
  /// its memory is not given away before that use is over.
  void hand_over(const at::Tensor& tensor) const;
  /// Work queued by the calling thread so far belongs to instruction `id` and earlier ones.
  void mark(int id);
  /// Work that the calling thread queues from now on starts after mark(id) is reached.
  void wait_for(int id) const;
  /// Blocks the calling thread until its stream is empty.
  void synchronize() const;
  /// Nanoseconds from mark `a` to mark `b`; both reached.
  std::int64_t between(int a, int b) const;

 private:
  c10::Stream current() const;
  c10::Device device_;
  c10::Stream first_;  // of the thread that made this
  std::vector<c10::Event> events_;
};

/// The device's allocator: high-water mark of tensor memory since the last reset.
void reset_device_peak(c10::Device device);
std::int64_t device_peak(c10::Device device);

}  // namespace motley::run
