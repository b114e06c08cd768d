#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <vector>

namespace motley::run {

/// Order and time on an asynchronous device (CUDA): one event per instruction that is awaited or
/// timed, and two per wait. Times are read on request, so a traced step pays only for recording
/// events. Uses PyTorch's device-neutral interface, without CUDA headers.
class Streams {
 public:
  /// Holds `instructions` instructions; keeps the times of the last `steps` steps, at least one.
  Streams(c10::Device device, std::size_t instructions, std::size_t steps = 1);
  /// Called by the thread that made this, while no other uses it.
  void begin_step(std::int64_t step);
  /// Blocks until the calling thread's stream is empty, and records when that was.
  void end_step();
  /// Gives the calling thread its own stream, so that its work overlaps with others'.
  void use_own_stream();
  /// Marks a tensor of this thread's stream as used in the stream of the thread that made this
  /// object: its memory is not reused before that use ends.
  void hand_over(const at::Tensor& tensor) const;
  /// Marks the calling thread's queued work as belonging to instruction `id` and earlier ones.
  void mark(int id);
  /// Delays work that the calling thread queues from now on until mark(id) is reached.
  void wait_for(int id) const;
  /// Marks begin and end of a wait before instruction `id`, an idle time that is not part of it.
  void mark_halt(int id);
  void mark_resumption(int id);
  /// Returns the nanoseconds of that wait in the last completed step.
  std::int64_t halted(int id) const;
  /// Returns the nanoseconds from the beginning of that step to mark(id).
  std::int64_t done_after(int id) const;
  void synchronize() const;

  struct Span {
    std::int64_t begin = 0, end = 0;
  };
  /// Returns when the device ran instructions of a kept step, each from the end of the previous one
  /// or of its own wait. `ids` ascend and were all marked; `waits` tells which waited. By the
  /// machine's monotonic clock, counted back from the end of the step.
  std::vector<Span> spans(std::int64_t step, const std::vector<int>& ids,
                          const std::vector<bool>& waits) const;

 private:
  /// The device creates events when they are first recorded.
  struct Step {
    std::int64_t step = -1, end_ns = 0;
    std::vector<c10::Event> ends, marks, halts, resumptions;  // of the step; by instruction
  };
  c10::Stream current() const;
  Step make_step() const;
  static std::int64_t between(const c10::Event& a, const c10::Event& b);

  c10::Device device_;
  c10::Stream first_;  // of the thread that made this
  std::size_t instructions_, kept_;
  std::vector<Step> steps_;  // a ring, as far as used
  std::size_t current_ = 0;
};

/// The device allocator's high-water mark of tensor memory since the last reset.
void reset_device_peak(c10::Device device);
std::int64_t device_peak(c10::Device device);
std::int64_t device_in_use(c10::Device device);

}  // namespace motley::run
