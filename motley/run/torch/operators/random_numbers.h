#pragma once

#include <cstdint>

#include "motley/run/torch/operators/element_types.h"
#include "motley/run/torch/operators/portable_functions.h"

namespace motley::run {

// Also compiled for GPUs at run time: see philox.h.

/// The value drawn for each element, from words w0, w1, ... of its streams (philox.h). u is w0's
/// upper 24 bits (f16: 11, bf16: 8) / 2^24; in double precision (w0, w1)'s upper 53. v is exact,
/// never 0 nor 1: (w0 + 1/2) / 2^32; in double precision from the upper 52 bits of (w0, w1).
enum class Distribution : std::uint8_t {
  kUniform,      ///< u, in [0, 1)
  kExponential,  ///< -log(v)
  kNormal,       ///< sqrt(-2 log(v)) * cos(2 pi v'), v' of the next words (Box and Muller, 1958)
  kBits,         ///< an integer in [0, 2^63): the upper 63 bits of (w0, w1)
  kPermutation,  ///< of 0, 1, ..., n-1: the order of u in double precision
};

/// Returns the words that a draw takes for each element.
inline int words_of(Distribution distribution, ElementType type) {
  if (distribution == Distribution::kBits || distribution == Distribution::kPermutation) return 2;
  const int words = distribution == Distribution::kNormal ? 2 : 1;
  return type == ElementType::kDouble ? 2 * words : words;
}

/// Returns the bits of a uniform number: those of the type's significand.
inline int bits_of(ElementType type) {
  return type == ElementType::kBFloat16 ? 8
         : type == ElementType::kHalf   ? 11
         : type == ElementType::kDouble ? 53
                                        : 24;
}

inline std::int64_t joined(std::uint32_t high, std::uint32_t low, int bits) {
  const std::uint64_t both = (static_cast<std::uint64_t>(high) << 32) | low;
  return static_cast<std::int64_t>(both >> (64 - bits));
}

/// Makes an element's value from its words; `word(i)` returns the i-th.
class NumberMaker {
 public:
  NumberMaker(Distribution distribution, ElementType type)
      : distribution_(distribution),
        is_wide_(type == ElementType::kDouble),
        bits_(bits_of(type)),
        unit_(power_of_two(-bits_)) {}

  template <typename Word>
  static std::int64_t bits(const Word& word) {
    return joined(word(0), word(1), 63);
  }

  template <typename Word>
  double number(const Word& word) const {
    if (distribution_ == Distribution::kUniform)
      return static_cast<double>(joined(word(0), is_wide_ ? word(1) : 0, bits_)) * unit_;
    const double ln = log_of(inner(word, 0));
    return distribution_ == Distribution::kExponential
               ? -ln
               : root_of(ln * -2.0) * cosine_of_turn(inner(word, is_wide_ ? 2 : 1));
  }

 private:
  /// Returns v, strictly between 0 and 1, from the words that begin at `first`.
  template <typename Word>
  double inner(const Word& word, int first) const {
    if (is_wide_)
      return (static_cast<double>(joined(word(first), word(first + 1), 52)) + 0.5) * 0x1p-52;
    return (static_cast<double>(word(first)) + 0.5) * 0x1p-32;
  }

  Distribution distribution_;
  bool is_wide_;
  int bits_;
  double unit_;
};

}  // namespace motley::run
