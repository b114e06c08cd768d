#include "motley/run/torch/operators/dropout.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace motley::run {

namespace {

constexpr std::int64_t kChunk = 4096;  // elements of one piece of parallel work
/// Elements drawn at a time by tensor operators, which hold eleven 64-bit numbers for each.
constexpr std::int64_t kMostDrawn = 1 << 20;

/// An element is kept if its word is at least this: its uniform number has the upper 24 bits.
std::int64_t threshold(double p) {
  const double rounded = static_cast<float>(p);
  return static_cast<std::int64_t>(std::ceil(rounded * 0x1p24)) << 8;
}

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
  const auto limit = static_cast<std::uint64_t>(threshold(p));
  const float scale = static_cast<float>(scale_of(p));
  const float* source = is_float ? x.const_data_ptr<float>() : nullptr;
  float* target = is_float ? out.mutable_data_ptr<float>() : nullptr;
  bool* kept = mask.mutable_data_ptr<bool>();
  at::parallel_for(0, x.numel(), 4 * kChunk, [&](std::int64_t from, std::int64_t to) {
    // In pieces that stay in the cache between mask and product.
    for (std::int64_t begin = from; begin < to; begin += kChunk)
      for_each_stretch(place, x.numel(), begin, std::min(to, begin + kChunk),
                       [&](std::int64_t index, std::int64_t local, std::int64_t count) {
                         fill_mask(stream, limit, index, index + count, kept + local);
                         if (is_float)
                           mask_and_scale(source + local, kept + local, scale, count,
                                          target + local);
                       });
  });
  if (!is_float) out = x.mul(mask).mul_(scale_of(p));
  return {out, mask};
}

}  // namespace

std::pair<at::Tensor, at::Tensor> dropout(const at::Tensor& x, double p, const ElementPlace& place,
                                          const RandomStream& stream) {
  if (x.is_cpu()) return dropout_cpu(x, p, place, stream);
  at::Tensor mask =
      dropout_mask_by_operators(x.numel(), p, place, stream, x.device()).view(x.sizes());
  return {x.mul(mask).mul_(scale_of(p)), mask};
}

at::Tensor dropout_mask_by_operators(std::int64_t elements, double p, const ElementPlace& place,
                                     const RandomStream& stream, at::Device device) {
  at::Tensor mask = at::empty({elements}, at::TensorOptions(device).dtype(at::kBool));
  for (std::int64_t begin = 0; begin < elements; begin += kMostDrawn) {
    const std::int64_t end = std::min(elements, begin + kMostDrawn);
    const at::Tensor indices = global_indices(place, elements, begin, end, device);
    mask.narrow(0, begin, end - begin)
        .copy_(philox_by_operators(stream, indices).ge_(threshold(p)));
  }
  return mask;
}

}  // namespace motley::run
