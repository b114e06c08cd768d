#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <vector>

namespace motley::run {

/// Order and time on a device that works asynchronously (CUDA): an event for each instruction that
/// somebody waits for or that is timed, and two for each wait. Times are read when they are asked
/// for, so that a step that is traced pays for recording events alone. Uses PyTorch's
/// device-neutral interface, no CUDA header.
class Streams {
 public:
  /// Of programs of so many instructions; keeps the times of the last `steps` steps, one at least.
  Streams(c10::Device device, std::size_t instructions, std::size_t steps = 1);
  /// Both by the thread that made this, while no other uses it.
  void begin_step(std::int64_t step);
  /// Blocks until the calling thread's stream is empty, and notes when that was.
  void end_step();
  /// Gives the calling thread a stream of its own, so that its work overlaps with that of others.
  void use_own_stream();
  /// A tensor made in this thread's stream is used in the one of the thread that made this object:
  /// its memory is not given away before that use is over.
  void hand_over(const at::Tensor& tensor) const;
  /// Work queued by the calling thread so far belongs to instruction `id` and earlier ones.
  void mark(int id);
  /// Work that the calling thread queues from now on starts after mark(id) is reached.
  void wait_for(int id) const;
  /// The calling thread is about to wait for what instruction `id` needs of others, and has waited:
  /// from here to there the stream is idle, and that is no part of the instruction.
  void mark_halt(int id);
  void mark_resumption(int id);
  /// Nanoseconds between the two in the step that ended last.
  std::int64_t halted(int id) const;
  /// Nanoseconds from the beginning of that step to mark(id).
  std::int64_t done_after(int id) const;
  /// Blocks the calling thread until its stream is empty.
  void synchronize() const;

  struct Span {
    std::int64_t begin = 0, end = 0;
  };
  /// When the device ran instructions of a step that is kept, each from the end of the one before
  /// or of its own wait; `ids` ascend, all were marked, `waits` says which waited. By the machine's
  /// monotonic clock, counted back from the end of the step.
  std::vector<Span> spans(std::int64_t step, const std::vector<int>& ids,
                          const std::vector<bool>& waits) const;

 private:
  /// Events are made by the device when they are first recorded.
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
  std::vector<Step> steps_;  // a ring, as far as it was used
  std::size_t current_ = 0;
};

/// The device's allocator: high-water mark of tensor memory since the last reset.
void reset_device_peak(c10::Device device);
std::int64_t device_peak(c10::Device device);
/// Tensor memory in use.
std::int64_t device_in_use(c10::Device device);

}  // namespace motley::run
