#include "motley/run/torch/memory/block_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <new>
#include <utility>

namespace motley::run {

/// Precedes every block's memory. Blocks of a segment form a list in address order.
struct alignas(64) BlockPool::Block {
  std::size_t requested = 0;  // by the caller
  std::size_t bytes = 0;      // usable; 0: from malloc
  Block* before = nullptr;
  Block* after = nullptr;
  void* malloc_memory = nullptr;
  bool is_free = false;
};

namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHeader = 64;
// Below it headers and rounding would outweigh the blocks, and malloc's caches are faster.
constexpr std::size_t kSmallBlock = 4 << 10;
constexpr std::size_t kHugePage = 2 << 20;
// Large, so that a step's blocks share few segments and a free one fits the next request.
constexpr std::size_t kSegment = 32 << 20;

std::size_t round_up(std::size_t bytes, std::size_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

}  // namespace

bool BlockPool::Smaller::operator()(const Block* a, const Block* b) const {
  if (a->bytes != b->bytes) return a->bytes < b->bytes;
  return std::less<>()(a, b);
}

BlockPool::~BlockPool() {
  for (const auto& [memory, bytes] : segments_) munmap(memory, bytes);
}

void* BlockPool::allocate(std::size_t bytes) {
  static_assert(sizeof(Block) == kHeader);
  Block* block = nullptr;
  if (bytes < kSmallBlock) {
    // malloc and manual rounding: aligned_alloc bypasses malloc's per-thread cache.
    void* memory = std::malloc(kAlignment + kHeader + bytes);
    if (memory == nullptr) return nullptr;
    block = new (reinterpret_cast<void*>(
        round_up(reinterpret_cast<std::uintptr_t>(memory), kAlignment))) Block();
    block->malloc_memory = memory;
  } else {
    const std::lock_guard lock(mutex_);
    block = take_free(round_up(bytes, kHeader));
    if (block == nullptr) return nullptr;
  }
  block->requested = bytes;
  return reinterpret_cast<std::byte*>(block) + kHeader;
}

void BlockPool::free(void* pointer) {
  Block* block = reinterpret_cast<Block*>(static_cast<std::byte*>(pointer) - kHeader);
  if (block->bytes == 0) {
    std::free(block->malloc_memory);
    return;
  }
  const std::lock_guard lock(mutex_);
  const auto join = [](Block* left, Block* right) {
    left->bytes += kHeader + right->bytes;
    left->after = right->after;
    if (right->after != nullptr) right->after->before = left;
  };
  if (Block* next = block->after; next != nullptr && next->is_free) {
    free_.erase(next);
    join(block, next);
  }
  if (Block* previous = block->before; previous != nullptr && previous->is_free) {
    free_.erase(previous);
    join(previous, block);
    block = previous;
  }
  block->is_free = true;
  free_.insert(block);
}

std::size_t BlockPool::size_of(const void* pointer) {
  return reinterpret_cast<const Block*>(static_cast<const std::byte*>(pointer) - kHeader)
      ->requested;
}

std::size_t BlockPool::segment_bytes() const {
  const std::lock_guard lock(mutex_);
  std::size_t total = 0;
  for (const auto& segment : segments_) total += segment.second;
  return total;
}

BlockPool::Block* BlockPool::take_free(std::size_t bytes) {
  // Sizes are multiples of 64: this probe precedes all blocks that are large enough.
  Block wanted;
  wanted.bytes = bytes - 1;
  const auto found = free_.upper_bound(&wanted);
  Block* block = found == free_.end() ? add_segment(bytes) : *found;
  if (block == nullptr) return nullptr;
  if (found != free_.end()) free_.erase(found);
  block->is_free = false;
  split(block, bytes);
  return block;
}

BlockPool::Block* BlockPool::add_segment(std::size_t bytes) {
  const std::size_t size = round_up(std::max(bytes + kHeader, kSegment), kHugePage);
  void* mapped =
      mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE,
           // NORESERVE: the size is rounded up and the tail never touched; only used pages count.
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  segments_.emplace_back(mapped, size + kHugePage);
  auto* memory =
      reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::uintptr_t>(mapped), kHugePage));
  madvise(memory, size, MADV_HUGEPAGE);  // advice: a refusal only costs time
  auto* block = new (memory) Block();
  block->bytes = size - kHeader;
  return block;
}

/// Returns the part of `block` beyond `bytes` to the pool, if it is worth a block of its own.
void BlockPool::split(Block* block, std::size_t bytes) {
  // A rest too small for any request would only slow the search.
  if (block->bytes < bytes + kHeader + kSmallBlock) return;
  auto* rest = new (reinterpret_cast<std::byte*>(block) + kHeader + bytes) Block();
  rest->bytes = block->bytes - bytes - kHeader;
  rest->before = block;
  rest->after = block->after;
  if (rest->after != nullptr) rest->after->before = rest;
  block->after = rest;
  block->bytes = bytes;
  rest->is_free = true;
  free_.insert(rest);
}

}  // namespace motley::run
