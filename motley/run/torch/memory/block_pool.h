#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

namespace motley::run {

/// Recycles memory, so that a training step, with the same sizes again and again, touches no fresh
/// page after the first one. Cuts blocks best-fit from large segments, on huge pages if available,
/// joins freed neighbours and keeps segments. Blocks are aligned to 64 bytes. Thread-safe. About
/// 0.1 us a call, logarithmic in the number of free blocks; requests below 4 KiB go to malloc.
class BlockPool {
 public:
  BlockPool() = default;
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  /// Returns memory for `bytes` > 0; null: the system has no more.
  void* allocate(std::size_t bytes);
  void free(void* pointer);
  /// Returns the size passed to allocate.
  static std::size_t size_of(const void* pointer);
  std::size_t segment_bytes() const;

 private:
  struct Block;
  struct Smaller {
    bool operator()(const Block* a, const Block* b) const;
  };
  Block* take_free(std::size_t bytes);
  Block* add_segment(std::size_t bytes);
  void split(Block* block, std::size_t bytes);

  mutable std::mutex mutex_;
  std::set<Block*, Smaller> free_;  // by size, then address
  std::vector<std::pair<void*, std::size_t>> segments_;
};

}  // namespace motley::run
