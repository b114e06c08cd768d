#include "motley/run/torch/operators/dropout.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "motley/run/torch/operators/device_kernels.h"

namespace motley::run {

namespace {

constexpr std::int64_t kChunk = 4096;  // elements per piece of parallel work

/// Returns the least word that is kept; the uniform number is its upper 24 bits.
std::uint64_t threshold(double p) {
  const double rounded = static_cast<float>(p);
  return static_cast<std::uint64_t>(std::ceil(rounded * 0x1p24)) << 8;
}

double scale_of(double p) { return p >= 1.0 ? 0.0 : 1.0 / (1.0 - p); }

/// Writes the mask of elements [begin, end) of the global tensor to `mask`.
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

template <typename T>
void mask_and_scale(const DropoutCall& call, std::int64_t begin, std::int64_t count) {
  const T* x = static_cast<const T*>(call.x) + begin;
  T* out = static_cast<T*>(call.out) + begin;
  const bool* mask = call.mask + begin;
  const auto scale = static_cast<decltype(take(x))>(call.scale);
  for (std::int64_t i = 0; i < count; ++i) put_dropout(x + i, mask[i], scale, out + i);
}

void drop_on_cpu(const DropoutCall& call) {
  const DrawnElements& elements = call.elements;
  const auto drop = [&](std::int64_t index, std::int64_t local, std::int64_t count) {
    fill_mask(elements.stream, call.limit, index, index + count, call.mask + local);
    if (call.x == nullptr) return;
    with_float_type(call.type, [&](auto* type) {
      mask_and_scale<std::remove_pointer_t<decltype(type)>>(call, local, count);
    });
  };
  at::parallel_for(0, elements.count, 4 * kChunk, [&](std::int64_t from, std::int64_t to) {
    // In pieces that stay in the cache between mask and product.
    for (std::int64_t begin = from; begin < to; begin += kChunk)
      for_each_stretch(elements.place, elements.count, begin, std::min(to, begin + kChunk), drop);
  });
}

}  // namespace

std::pair<at::Tensor, at::Tensor> dropout(const at::Tensor& x, double p, const ElementPlace& place,
                                          const RandomStream& stream) {
  const auto type = find_element_type(x.scalar_type());
  const bool is_ours = type && type != ElementType::kInt64;
  at::Tensor mask = at::empty(x.sizes(), x.options().dtype(at::kBool));
  DropoutCall call{.elements = {x.numel(), place, stream},
                   .limit = threshold(p),
                   .mask = mask.mutable_data_ptr<bool>(),
                   .scale = scale_of(p)};
  at::Tensor out;
  if (is_ours) {
    out = at::empty(x.sizes(), x.options());
    // A tensor that is not contiguous is first copied into the result.
    if (!x.is_contiguous()) out.copy_(x);
    call.type = *type;
    call.x = x.is_contiguous() ? x.const_data_ptr() : out.const_data_ptr();
    call.out = out.mutable_data_ptr();
  }
  if (x.is_cpu())
    drop_on_cpu(call);
  else
    device_kernels(x.device()).drop(call, x.device());
  if (!is_ours) out = x.mul(mask).mul_(call.scale);
  return {out, mask};
}

}  // namespace motley::run
