#include "motley/run/torch/memory/allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "motley/base/text.h"

namespace motley::run {

namespace {

[[noreturn]] void refuse(std::int64_t wanted, std::int64_t in_use, std::int64_t limit) {
  const std::string room =
      limit < 0 ? "no more from the system" : "limit " + format_bytes(Bytes(limit));
  const std::string message =
      fmt::format("out of memory: wanted {}, {} in use, {}", format_bytes(Bytes(wanted)),
                  format_bytes(Bytes(in_use)), room);
  // PyTorch's own type, which a GPU's allocator throws too: callers recognize it.
  C10_THROW_ERROR(OutOfMemoryError, message);
}

}  // namespace

CountingAllocator& CountingAllocator::install() {
  // Never destroyed: tensors in static storage may outlive main.
  static CountingAllocator* const allocator = [] {
    auto* made = new CountingAllocator();
    c10::SetCPUAllocator(made, /*priority=*/100);
    return made;
  }();
  return *allocator;
}

void CountingAllocator::set_limit(std::optional<Bytes> limit) {
  limit_.store(limit ? limit->value : -1, std::memory_order_relaxed);
}

c10::DataPtr CountingAllocator::allocate(std::size_t bytes) {
  const c10::Device cpu(c10::DeviceType::CPU);
  if (bytes == 0) return {nullptr, nullptr, &release, cpu};
  // Charged before it is allocated: two threads at the limit cannot both succeed.
  charge(static_cast<std::int64_t>(bytes));
  void* memory = pool_.allocate(bytes);
  if (memory == nullptr) {
    in_use_.fetch_sub(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
    refuse(static_cast<std::int64_t>(bytes), in_use(), -1);
  }
  return {memory, memory, &release, cpu};
}

void CountingAllocator::charge(std::int64_t bytes) {
  const std::int64_t now = in_use_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  const std::int64_t limit = limit_.load(std::memory_order_relaxed);
  if (limit >= 0 && now > limit) {
    in_use_.fetch_sub(bytes, std::memory_order_relaxed);
    refuse(bytes, now - bytes, limit);
  }
  std::int64_t peak = peak_.load(std::memory_order_relaxed);
  while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}

c10::DeleterFnPtr CountingAllocator::raw_deleter() const { return &release; }

void CountingAllocator::copy_data(void* target, const void* source, std::size_t bytes) const {
  default_copy_data(target, source, bytes);
}

void CountingAllocator::release(void* pointer) {
  if (pointer == nullptr) return;
  CountingAllocator& allocator = install();
  allocator.in_use_.fetch_sub(static_cast<std::int64_t>(BlockPool::size_of(pointer)),
                              std::memory_order_relaxed);
  allocator.pool_.free(pointer);
}

}  // namespace motley::run
