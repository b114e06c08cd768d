#pragma once

#include <bit>
#include <cstdint>

namespace motley::run {

// Also compiled for GPUs at run time: see philox.h.

struct Half {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};

enum class ElementType : std::uint8_t { kFloat, kDouble, kHalf, kBFloat16, kInt64 };

/// Calls `body(T*)` with a null pointer of the type's T. False: not a floating type.
template <typename Body>
bool with_float_type(ElementType type, const Body& body) {
  switch (type) {
    case ElementType::kFloat:
      body(static_cast<float*>(nullptr));
      return true;
    case ElementType::kDouble:
      body(static_cast<double*>(nullptr));
      return true;
    case ElementType::kHalf:
      body(static_cast<Half*>(nullptr));
      return true;
    case ElementType::kBFloat16:
      body(static_cast<BFloat16*>(nullptr));
      return true;
    case ElementType::kInt64:
      break;
  }
  return false;
}

/// Rounds to nearest, ties to even, as all below.
inline void put(float* to, float x) { *to = x; }
inline void put(float* to, double x) { *to = static_cast<float>(x); }
inline void put(double* to, double x) { *to = x; }

inline void put(Half* to, float x) {
  const auto all = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t bits = all & 0x7FFFFFFF;
  // Added to 1/2, a float's last bit is 2^-24, the smallest half.
  const std::uint32_t small =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(bits) + 0.5f) - 0x3F000000;
  const std::uint32_t normal = (bits + 0xFFF + ((bits >> 13) & 1) - (112u << 23)) >> 13;
  const std::uint32_t large = bits > 0x7F800000 ? 0x7E00 : 0x7C00;
  const std::uint32_t rounded = bits < 0x38800000 ? small : bits < 0x47800000 ? normal : large;
  to->bits = static_cast<std::uint16_t>(rounded | ((all >> 16) & 0x8000));
}
inline void put(BFloat16* to, float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  to->bits = static_cast<std::uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC0 : rounded);
}
/// Rounds to float first, as PyTorch does.
inline void put(Half* to, double x) { put(to, static_cast<float>(x)); }
inline void put(BFloat16* to, double x) { put(to, static_cast<float>(x)); }

/// Keeps x or sets it to 0, by its bits.
inline void clear_unless(bool stays, float* x) {
  *x = std::bit_cast<float>(std::bit_cast<std::uint32_t>(*x) & (0u - std::uint32_t{stays}));
}
inline void clear_unless(bool stays, double* x) {
  *x = std::bit_cast<double>(std::bit_cast<std::uint64_t>(*x) &
                             (std::uint64_t{0} - std::uint64_t{stays}));
}
template <typename Short>
void clear_unless(bool stays, Short* x) {
  x->bits = static_cast<std::uint16_t>(x->bits & (0u - std::uint32_t{stays}));
}

inline float take(const float* from) { return *from; }
inline double take(const double* from) { return *from; }
inline float take(const Half* from) {
  const std::uint32_t bits = from->bits & 0x7FFFu, sign = (from->bits & 0x8000u) << 16;
  const float rebased = std::bit_cast<float>(bits << 13) * 0x1p112f;
  const std::uint32_t infinite = bits >= 0x7C00 ? 0x7F800000 : 0;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(rebased) | infinite | sign);
}
inline float take(const BFloat16* from) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(from->bits) << 16);
}

}  // namespace motley::run
