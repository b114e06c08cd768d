#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace motley::run {

/// Identifies a stream of random words: there is one for each draw of a model and each step, and
/// further ones for draws that need several words an element.
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
/// Laid out so that 16 neighbouring elements are the same word of 16 neighbouring blocks, which is
/// what vector units like. Philox: Salmon et al., SC 2011; ten rounds.
constexpr int kPhiloxGroup = 64;

/// Writes the words of elements [64 * group, 64 * group + 64) to `words`. About 2 ns a word.
void philox_group(const RandomStream& stream, std::uint64_t group, std::uint32_t* words);

/// The words of elements `indices`, in 64 bits each, by integer tensor operators: what devices
/// without a kernel of ours use.
at::Tensor philox_by_operators(const RandomStream& stream, const at::Tensor& indices);

}  // namespace motley::run
