#pragma once

#include <cstdint>

namespace motley::run {

// Also compiled for GPUs at run time (cuda/kernels.h): it may use only the part of the standard
// library listed there, and no memory of its own.

/// Identifies a stream of random words: of a draw and step, and of an element's further words.
struct RandomStream {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t draw = 0;  ///< < 2^30
  int word = 0;           ///< of an element: 0 to 3
};

/// Word of element `index` of a stream is word (index % 64) / 16 of
///   philox4x32(counter {low, high half of block, draw + word * 2^30, step},
///              key {low, high half of seed}),
///   block = index / 64 * 16 + index % 16.
/// So 16 consecutive elements are the same word of 16 consecutive blocks, which suits vector units.
/// Philox: Salmon et al., SC 2011; ten rounds.
constexpr int kPhiloxGroup = 64, kPhiloxRounds = 10;

/// Four words: a counter, and after the rounds the random words.
struct PhiloxBlock {
  std::uint32_t a, b, c, d;
};
struct PhiloxKey {
  std::uint32_t low, high;
};

inline PhiloxBlock philox_counter(const RandomStream& stream, std::uint64_t block) {
  return {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
          static_cast<std::uint32_t>(stream.draw) + (static_cast<std::uint32_t>(stream.word) << 30),
          static_cast<std::uint32_t>(stream.step)};
}

inline PhiloxKey philox_key(const RandomStream& stream) {
  return {static_cast<std::uint32_t>(stream.seed), static_cast<std::uint32_t>(stream.seed >> 32)};
}

inline PhiloxKey next_key(const PhiloxKey& key) {
  return {key.low + 0x9E3779B9, key.high + 0xBB67AE85};
}

inline PhiloxBlock philox_round(const PhiloxBlock& x, const PhiloxKey& key) {
  constexpr std::uint32_t kFirst = 0xD2511F53, kSecond = 0xCD9E8D57;
  const std::uint64_t first = std::uint64_t{kFirst} * x.a, second = std::uint64_t{kSecond} * x.c;
  return {static_cast<std::uint32_t>(second >> 32) ^ x.b ^ key.low, kSecond * x.c,
          static_cast<std::uint32_t>(first >> 32) ^ x.d ^ key.high, kFirst * x.a};
}

/// Returns the words of elements i, i + 16, i + 32 and i + 48 of a group, which share a block.
inline PhiloxBlock philox_block(const RandomStream& stream, std::uint64_t block) {
  PhiloxBlock x = philox_counter(stream, block);
  PhiloxKey key = philox_key(stream);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    x = philox_round(x, key);
    key = next_key(key);
  }
  return x;
}

/// Writes the words of elements [64 * group, 64 * group + 64). For CPUs; about 2 ns a word.
void philox_group(const RandomStream& stream, std::uint64_t group, std::uint32_t* words);

}  // namespace motley::run
