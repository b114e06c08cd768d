#include "motley/run/torch/operators/distributions.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sort.h>

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "motley/run/torch/operators/device_kernels.h"

namespace motley::run {

namespace {

constexpr std::array<std::pair<std::string_view, Distribution>, 5> kDistributions = {{
    {"uniform", Distribution::kUniform},
    {"exponential", Distribution::kExponential},
    {"normal", Distribution::kNormal},
    {"bits", Distribution::kBits},
    {"permutation", Distribution::kPermutation},
}};

using Words = std::array<std::array<std::uint32_t, kPhiloxGroup>, 4>;

/// Calls `put(local, words, i)` for each element of a range, a group of words at a time.
template <typename Put>
void for_each_element(RandomStream stream, int words, std::int64_t index, std::int64_t local,
                      std::int64_t count, const Put& put) {
  Words w;
  const std::int64_t end = index + count;
  for (std::int64_t group = index / kPhiloxGroup; group * kPhiloxGroup < end; ++group) {
    for (stream.word = 0; stream.word < words; ++stream.word)
      philox_group(stream, static_cast<std::uint64_t>(group),
                   w[static_cast<std::size_t>(stream.word)].data());
    const std::int64_t base = group * kPhiloxGroup;
    const std::int64_t from = std::max(index, base), to = std::min(end, base + kPhiloxGroup);
    for (std::int64_t e = from; e < to; ++e) put(local + e - index, w, static_cast<int>(e - base));
  }
}

template <typename T>
void fill_cpu(const DrawCall& call) {
  constexpr std::int64_t kGrain = 4096;
  const NumberMaker make(call.distribution, call.type);
  const int words = words_of(call.distribution, call.type);
  T* target = static_cast<T*>(call.out);
  const auto put_number = [&](std::int64_t local, const Words& w, int i) {
    const auto at = static_cast<std::size_t>(i);
    const auto word = [&](int k) { return w[static_cast<std::size_t>(k)][at]; };
    if constexpr (std::is_same_v<T, std::int64_t>)
      target[local] = make.bits(word);
    else
      put(target + local, make.number(word));
  };
  const DrawnElements& elements = call.elements;
  at::parallel_for(0, elements.count, kGrain, [&](std::int64_t from, std::int64_t to) {
    for_each_stretch(elements.place, elements.count, from, to,
                     [&](std::int64_t index, std::int64_t local, std::int64_t count) {
                       for_each_element(elements.stream, words, index, local, count, put_number);
                     });
  });
}

void draw_on_cpu(const DrawCall& call) {
  const bool is_float = with_float_type(
      call.type, [&](auto* type) { fill_cpu<std::remove_pointer_t<decltype(type)>>(call); });
  if (!is_float) fill_cpu<std::int64_t>(call);
}

/// Returns the order of uniform numbers. Equal ones, if any, keep their order.
at::Tensor permutation(const Draw& what, const RandomStream& stream, at::Device device) {
  Draw keys = what;
  keys.distribution = Distribution::kUniform;
  keys.dtype = at::kDouble;
  return std::get<1>(
      at::sort(draw(keys, stream, device), /*stable=*/true, 0, /*descending=*/false));
}

}  // namespace

std::optional<Distribution> find_distribution(std::string_view name) {
  for (const auto& [known, distribution] : kDistributions)
    if (known == name) return distribution;
  return std::nullopt;
}

bool gives(Distribution distribution, at::ScalarType dtype) {
  const bool is_number =
      distribution != Distribution::kBits && distribution != Distribution::kPermutation;
  if (!is_number) return dtype == at::kLong;
  return dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf ||
         dtype == at::kBFloat16;
}

at::Tensor draw(const Draw& what, const RandomStream& stream, at::Device device) {
  if (what.distribution == Distribution::kPermutation) return permutation(what, stream, device);
  at::Tensor out = at::empty(what.shape, at::TensorOptions(device).dtype(what.dtype));
  const DrawCall call{.elements = {out.numel(), what.place, stream},
                      .distribution = what.distribution,
                      .type = *find_element_type(what.dtype),
                      .out = out.mutable_data_ptr()};
  if (device.is_cpu())
    draw_on_cpu(call);
  else
    device_kernels(device).draw(call, device);
  return out;
}

}  // namespace motley::run
