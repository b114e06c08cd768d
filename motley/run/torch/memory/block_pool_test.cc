#include "motley/run/torch/memory/block_pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "motley/base/random.h"

namespace motley::run {
namespace {

TEST(BlockPool, GivesTheSameMemoryAgain) {
  BlockPool pool;
  void* first = pool.allocate(1 << 20);
  pool.free(first);
  EXPECT_EQ(pool.allocate(1 << 20), first);
}

TEST(BlockPool, JoinsFreeNeighbours) {
  BlockPool pool;
  // Three blocks fill most of a 32 MiB segment; only joined do they make room for the large one.
  std::vector<void*> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(pool.allocate(10 << 20));
  const std::size_t held = pool.segment_bytes();
  pool.free(blocks[0]);
  pool.free(blocks[2]);
  pool.free(blocks[1]);
  EXPECT_NE(pool.allocate(30 << 20), nullptr);
  EXPECT_EQ(pool.segment_bytes(), held);
}

TEST(BlockPool, KeepsBlocksApart) {
  constexpr std::uint64_t kSeed = 7;
  BlockPool pool;
  SplitMix64 random(kSeed);
  std::map<unsigned char*, std::pair<std::size_t, unsigned char>> live;
  for (int round = 0; round < 3000; ++round) {
    if (live.size() > 40) {
      auto victim = live.begin();
      std::advance(victim, random.below(live.size()));
      const auto [bytes, mark] = victim->second;
      for (const std::size_t at : {std::size_t{0}, bytes / 2, bytes - 1})
        ASSERT_EQ(victim->first[at], mark) << "seed " << kSeed << " round " << round;
      pool.free(victim->first);
      live.erase(victim);
    }
    const std::size_t bytes = 1 + random.below(std::size_t{1} << random.below(18));
    auto* memory = static_cast<unsigned char*>(pool.allocate(bytes));
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 64, 0u);
    ASSERT_EQ(BlockPool::size_of(memory), bytes);
    const auto mark = static_cast<unsigned char>(random.below(256));
    std::memset(memory, mark, bytes);
    live[memory] = {bytes, mark};
  }
}

}  // namespace
}  // namespace motley::run
