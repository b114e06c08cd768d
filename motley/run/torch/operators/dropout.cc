#include "motley/run/torch/operators/dropout.h"

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace motley::run {

namespace {

constexpr std::int64_t kChunk = 4096;  // elements of one piece of parallel work

/// An element is kept if its word is at least this.
std::uint64_t threshold(double p) { return static_cast<std::uint64_t>(std::llround(p * 0x1p32)); }

/// Mask of elements [begin, end) of the global tensor, to `mask`.
void fill_mask(const RandomStream& stream, std::uint64_t limit, std::int64_t begin,
               std::int64_t end, bool* mask) {
  std::array<std::uint32_t, kPhiloxGroup> words;
  for (std::int64_t group = begin / kPhiloxGroup; group * kPhiloxGroup < end; ++group) {
    philox_group(stream, static_cast<std::uint64_t>(group), words.data());
    const std::int64_t base = group * kPhiloxGroup;
    const std::int64_t from = std::max(begin, base), to = std::min(end, base + kPhiloxGroup);
    for (std::int64_t e = from; e < to; ++e) mask[e - begin] = words[e - base] >= limit;
  }
}

void mask_and_scale(const float* x, const bool* mask, float scale, std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = mask[i] ? x[i] * scale : 0.0f;
}

double scale_of(double p) { return p >= 1.0 ? 0.0 : 1.0 / (1.0 - p); }

std::pair<at::Tensor, at::Tensor> dropout_cpu(const at::Tensor& given, double p,
                                              const ElementPlace& place,
                                              const RandomStream& stream) {
  const at::Tensor x = given.contiguous();
  at::Tensor mask = at::empty_like(x, x.options().dtype(at::kBool));
  const bool is_float = x.scalar_type() == at::kFloat;
  at::Tensor out = is_float ? at::empty_like(x) : at::Tensor();
  if (x.numel() == 0) return {is_float ? out : x, mask};
  const std::int64_t run = x.numel() / place.outer;  // neighbours in both tensors
  // Pieces of a fixed size whatever the number of threads: bits depend on the place alone.
  const std::int64_t chunks = (run + kChunk - 1) / kChunk;
  const std::uint64_t limit = threshold(p);
  const float scale = static_cast<float>(scale_of(p));
  const float* source = is_float ? x.const_data_ptr<float>() : nullptr;
  float* target = is_float ? out.mutable_data_ptr<float>() : nullptr;
  bool* kept = mask.mutable_data_ptr<bool>();
  at::parallel_for(0, place.outer * chunks, 4, [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t piece = from; piece < to; ++piece) {
      const std::int64_t o = piece / chunks, offset = piece % chunks * kChunk;
      const std::int64_t count = std::min(kChunk, run - offset), local = o * run + offset;
      const std::int64_t global = (o * place.global + place.first) * place.inner + offset;
      fill_mask(stream, limit, global, global + count, kept + local);
      if (is_float) mask_and_scale(source + local, kept + local, scale, count, target + local);
    }
  });
  if (!is_float) out = x.mul(mask).mul_(scale_of(p));
  return {out, mask};
}

// The same generator by tensor operators, for devices without a kernel of our own: 32-bit
// arithmetic in int64, whose products of two such numbers wrap as unsigned ones do.
constexpr std::int64_t kLow = 0xFFFFFFFF;

/// High 32 bits of a 32-bit constant times 32-bit values kept in int64.
at::Tensor high_product(const at::Tensor& values, std::int64_t constant) {
  return values.mul(constant).__rshift__(32).bitwise_and_(kLow);
}

}  // namespace

std::pair<at::Tensor, at::Tensor> dropout(const at::Tensor& x, double p, const ElementPlace& place,
                                          const RandomStream& stream) {
  if (x.is_cpu()) return dropout_cpu(x, p, place, stream);
  const std::int64_t samples = x.numel() / (place.outer * place.inner);
  at::Tensor mask =
      dropout_mask_by_operators(samples, p, place, stream, x.device()).view(x.sizes());
  return {x.mul(mask).mul_(scale_of(p)), mask};
}

at::Tensor dropout_mask_by_operators(std::int64_t samples, double p, const ElementPlace& place,
                                     const RandomStream& stream, at::Device device) {
  const auto options = at::TensorOptions(device).dtype(at::kLong);
  at::Tensor index = at::arange(samples * place.inner, options).add_(place.first * place.inner);
  index = at::arange(place.outer, options)
              .mul_(place.global * place.inner)
              .unsqueeze(1)
              .add(index)
              .flatten();
  const at::Tensor block = index.div(kPhiloxGroup, "floor").mul_(16).add_(index.remainder(16));
  at::Tensor c0 = block.bitwise_and(kLow), c1 = block.__rshift__(32);
  at::Tensor c2 = at::zeros_like(c0).add_(stream.op & kLow);
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
  const at::Tensor word = index.remainder(kPhiloxGroup).div(16, "floor");
  const at::Tensor drawn =
      at::where(word.lt(2), at::where(word.eq(0), c0, c1), at::where(word.eq(2), c2, c3));
  return drawn.ge(static_cast<std::int64_t>(threshold(p)));
}

}  // namespace motley::run
