#include "motley/run/torch/operators/philox.h"

#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

namespace motley::run {

namespace {

/// The third word of the counter.
std::uint32_t draw_and_word(const RandomStream& stream) {
  return static_cast<std::uint32_t>(stream.draw) + (static_cast<std::uint32_t>(stream.word) << 30);
}

}  // namespace

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
    c2[i] = draw_and_word(stream);
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

namespace {

// 32-bit arithmetic in int64, whose products of two such numbers wrap as unsigned ones do.
constexpr std::int64_t kLow = 0xFFFFFFFF;

/// High 32 bits of a 32-bit constant times 32-bit values kept in int64.
at::Tensor high_product(const at::Tensor& values, std::int64_t constant) {
  return values.mul(constant).__rshift__(32).bitwise_and_(kLow);
}

}  // namespace

at::Tensor philox_by_operators(const RandomStream& stream, const at::Tensor& indices) {
  const at::Tensor block =
      indices.div(kPhiloxGroup, "floor").mul_(kPhiloxGroup / 4).add_(indices.remainder(16));
  at::Tensor c0 = block.bitwise_and(kLow), c1 = block.__rshift__(32);
  at::Tensor c2 = at::zeros_like(c0).add_(std::int64_t{draw_and_word(stream)});
  at::Tensor c3 = at::zeros_like(c0).add_(stream.step & kLow);
  std::uint32_t k0 = static_cast<std::uint32_t>(stream.seed);
  std::uint32_t k1 = static_cast<std::uint32_t>(stream.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const at::Tensor high0 = high_product(c0, 0xD2511F53), high1 = high_product(c2, 0xCD9E8D57);
    const at::Tensor low0 = c0.mul(0xD2511F53).bitwise_and_(kLow);
    const at::Tensor low1 = c2.mul(0xCD9E8D57).bitwise_and_(kLow);
    c0 = high1.bitwise_xor(c1).bitwise_xor_(std::int64_t{k0});
    c2 = high0.bitwise_xor(c3).bitwise_xor_(std::int64_t{k1});
    c1 = low1;
    c3 = low0;
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  const at::Tensor word = indices.remainder(kPhiloxGroup).div(16, "floor");
  return at::where(word.lt(2), at::where(word.eq(0), c0, c1), at::where(word.eq(2), c2, c3));
}

}  // namespace motley::run
