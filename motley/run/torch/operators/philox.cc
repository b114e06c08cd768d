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
  std::uint32_t a[kBlocks], b[kBlocks], c[kBlocks], d[kBlocks];
  // A group's 16 blocks never cross a multiple of 2^32.
  const PhiloxBlock first = philox_counter(stream, group * kBlocks);
  for (int i = 0; i < kBlocks; ++i) {
    a[i] = first.a + static_cast<std::uint32_t>(i);
    b[i] = first.b;
    c[i] = first.c;
    d[i] = first.d;
  }
  PhiloxKey key = philox_key(stream);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    // If unrolled, the compiler would no longer vectorize it.
#pragma GCC unroll 1
    for (int i = 0; i < kBlocks; ++i) {
      const PhiloxBlock x = philox_round({a[i], b[i], c[i], d[i]}, key);
      a[i] = x.a;
      b[i] = x.b;
      c[i] = x.c;
      d[i] = x.d;
    }
    key = next_key(key);
  }
  for (int i = 0; i < kBlocks; ++i) {
    words[i] = a[i];
    words[kBlocks + i] = b[i];
    words[2 * kBlocks + i] = c[i];
    words[3 * kBlocks + i] = d[i];
  }
}

}  // namespace motley::run
