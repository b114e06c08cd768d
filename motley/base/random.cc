#include "motley/base/random.h"

#include <fmt/format.h>
#include <xxhash.h>

#include "motley/base/check.h"

namespace motley {

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key) {
  // Constants and ten rounds of Salmon et al. (SC 2011): bitwise the Philox of cuRAND and PyTorch.
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = kMultiplier0 * counter[0];
    const std::uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

std::uint64_t SplitMix64::next() {
  // Steele, Lea and Flood (OOPSLA 2014): a counter in steps of the golden ratio, then a bijective
  // mixing, so no state repeats within 2^64 draws.
  std::uint64_t z = (state_ += 0x9E3779B97F4A7C15);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

std::uint64_t SplitMix64::below(std::uint64_t bound) {
  MOTLEY_CHECK(bound > 0);
  // Rejects the lowest 2^64 mod bound values, which would make small remainders more likely.
  const std::uint64_t reject_below = (0 - bound) % bound;
  std::uint64_t drawn = next();
  while (drawn < reject_below) drawn = next();
  return drawn % bound;
}

/// Uses the top 53 bits: every multiple of 2^-53 in [0, 1) is equally likely.
double SplitMix64::uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

std::uint64_t hash_bytes(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string hash_hex(std::string_view bytes) { return fmt::format("{:016x}", hash_bytes(bytes)); }

}  // namespace motley
