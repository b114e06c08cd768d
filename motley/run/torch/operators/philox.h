#pragma once

#include <cstdint>

namespace motley::run {

/// Identifies a stream of random words: one for each dropout operator and step.
struct RandomStream {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t op = 0;
};

/// Word of element `index` of a stream is word (index % 64) / 16 of
///   philox4x32(counter {low, high half of block, op, step}, key {low, high half of seed}),
///   block = index / 64 * 16 + index % 16.
/// Laid out so that 16 neighbouring elements are the same word of 16 neighbouring blocks, which is
/// what vector units like. Philox: Salmon et al., SC 2011; ten rounds.
constexpr int kPhiloxGroup = 64;

/// Writes the words of elements [64 * group, 64 * group + 64) to `words`. About 2 ns a word.
void philox_group(const RandomStream& stream, std::uint64_t group, std::uint32_t* words);

}  // namespace motley::run
