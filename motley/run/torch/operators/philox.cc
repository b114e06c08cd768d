#include "motley/run/torch/operators/philox.h"

namespace motley::run {

// Compiled for several instruction sets; the loader picks one.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
#define MOTLEY_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define MOTLEY_VECTOR_CLONES
#endif

MOTLEY_VECTOR_CLONES __attribute__((optimize("O3"))) void philox_group(const RandomStream& stream,
                                                                       std::uint64_t group,
                                                                       std::uint32_t* words) {
  constexpr int kBlocks = kPhiloxGroup / 4;
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  std::uint32_t c0[kBlocks], c1[kBlocks], c2[kBlocks], c3[kBlocks];
  // A group's 16 blocks never cross a multiple of 2^32.
  const std::uint64_t first = group * kBlocks;
  for (int i = 0; i < kBlocks; ++i) {
    c0[i] = static_cast<std::uint32_t>(first) + static_cast<std::uint32_t>(i);
    c1[i] = static_cast<std::uint32_t>(first >> 32);
    c2[i] = static_cast<std::uint32_t>(stream.op);
    c3[i] = static_cast<std::uint32_t>(stream.step);
  }
  std::uint32_t k0 = static_cast<std::uint32_t>(stream.seed);
  std::uint32_t k1 = static_cast<std::uint32_t>(stream.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    // Unrolled, this would no longer be seen as work for vector units.
#pragma GCC unroll 1
    for (int i = 0; i < kBlocks; ++i) {
      const std::uint32_t high0 = static_cast<std::uint32_t>((kMultiplier0 * c0[i]) >> 32);
      const std::uint32_t high1 = static_cast<std::uint32_t>((kMultiplier1 * c2[i]) >> 32);
      const std::uint32_t low0 = static_cast<std::uint32_t>(kMultiplier0) * c0[i];
      const std::uint32_t low1 = static_cast<std::uint32_t>(kMultiplier1) * c2[i];
      c0[i] = high1 ^ c1[i] ^ k0;
      c1[i] = low1;
      c2[i] = high0 ^ c3[i] ^ k1;
      c3[i] = low0;
    }
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  for (int i = 0; i < kBlocks; ++i) {
    words[i] = c0[i];
    words[kBlocks + i] = c1[i];
    words[2 * kBlocks + i] = c2[i];
    words[3 * kBlocks + i] = c3[i];
  }
}

}  // namespace motley::run
