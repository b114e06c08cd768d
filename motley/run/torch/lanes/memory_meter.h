#pragma once

#include <c10/core/Device.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "motley/run/torch/lanes/streams.h"
#include "motley/run/torch/memory/allocator.h"

namespace motley::run {

/// What tensors of a device hold. A GPU's allocator counts when memory is requested, not when the
/// device uses it. Workspaces of cuDNN come from it too; cuBLAS keeps its own, which is not an
/// operator's scratch.
class MemoryMeter {
 public:
  /// `limit`: of a CPU's tensors.
  MemoryMeter(c10::Device device, const std::optional<Bytes>& limit)
      : device_(device), allocator_(CountingAllocator::install()) {
    if (limit && device.is_cpu()) allocator_.set_limit(limit);
  }
  c10::Device device() const { return device_; }
  void begin_step() {
    reset_peak();
    highest_ = 0;
  }
  /// Calls `run`. Returns what it needed beside what it left in use.
  template <typename Run>
  Bytes measure(const Run& run) {
    reset_peak();
    run();
    const std::int64_t most = peak();
    highest_ = std::max(highest_, most);
    return Bytes(most - (device_.is_cpu() ? allocator_.in_use() : device_in_use(device_)));
  }
  /// Returns the most bytes since the step began.
  std::int64_t step_peak() const { return std::max(highest_, peak()); }

 private:
  void reset_peak() {
    if (device_.is_cpu())
      allocator_.reset_peak();
    else
      reset_device_peak(device_);
  }
  std::int64_t peak() const { return device_.is_cpu() ? allocator_.peak() : device_peak(device_); }

  c10::Device device_;
  CountingAllocator& allocator_;
  std::int64_t highest_ = 0;  // of this step; measure resets the allocator's mark
};

}  // namespace motley::run
