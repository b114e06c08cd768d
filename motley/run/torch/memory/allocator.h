#pragma once

#include <c10/core/Allocator.h>

#include <atomic>
#include <cstdint>
#include <optional>

#include "motley/base/units.h"
#include "motley/run/torch/memory/block_pool.h"

namespace motley::run {

/// PyTorch's CPU allocator in this process: counts what tensors hold, enforces a limit and recycles
/// memory (block_pool.h). Counts requested bytes, including kernel scratch that goes through
/// PyTorch's allocator; scratch of oneDNN and of the threading library is not seen. Thread-safe.
class CountingAllocator final : public c10::Allocator {
 public:
  /// Returns the process's only instance, which becomes PyTorch's CPU allocator at the first call.
  /// Call it before the first tensor is made. Lives until the process ends.
  static CountingAllocator& install();

  /// Makes allocations beyond `limit` in total throw c10::OutOfMemoryError; empty: no limit.
  void set_limit(std::optional<Bytes> limit);

  std::int64_t in_use() const { return in_use_.load(std::memory_order_relaxed); }
  std::int64_t peak() const { return peak_.load(std::memory_order_relaxed); }
  void reset_peak() { peak_.store(in_use(), std::memory_order_relaxed); }
  /// Returns the address space held, free blocks included.
  std::int64_t held() const { return static_cast<std::int64_t>(pool_.segment_bytes()); }

  c10::DataPtr allocate(std::size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* target, const void* source, std::size_t bytes) const override;

 private:
  CountingAllocator() = default;
  static void release(void* pointer);
  void charge(std::int64_t bytes);

  BlockPool pool_;
  std::atomic<std::int64_t> in_use_ = 0, peak_ = 0, limit_ = -1;
};

}  // namespace motley::run
