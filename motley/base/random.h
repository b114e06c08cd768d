#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace motley {

/// Philox4x32-10 (Salmon et al., SC 2011): returns four random words for a counter under a key.
/// Pure: the number of any element can be drawn without those before it.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key);

/// A small seeded generator for planners and tests (SplitMix64). Same seed, same sequence.
class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  /// Uniform in [0, bound); bound > 0. Without modulo bias.
  std::uint64_t below(std::uint64_t bound);
  /// Uniform in [0, 1).
  double uniform();

 private:
  std::uint64_t state_;
};

/// Returns a 64-bit hash of bytes (XXH3).
std::uint64_t hash_bytes(std::string_view bytes);

/// Returns the same as 16 hex digits; identifies models, clusters, plans.
std::string hash_hex(std::string_view bytes);

}  // namespace motley
