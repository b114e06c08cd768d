#pragma once

#include <algorithm>
#include <cstdint>

namespace motley::run {

// Also compiled for GPUs at run time: see philox.h.

/// Maps a local tensor's elements to the global tensor. Viewed as [outer, part, inner], its part is
/// [first, first + part) of the `global` middle indices: element (o, s, j) has place (o * global +
/// first + s) * inner + j in the micro-batch. The whole batch consists of rows of `stride`
/// elements; the micro-batch has the `run` elements after the first `skip` of each row.
struct ElementPlace {
  std::int64_t outer = 1, inner = 1;
  std::int64_t first = 0, global = 0;
  std::int64_t run = 1, skip = 0, stride = 1;
};

/// Returns the place of element `local`, of `elements`, in the global tensor.
inline std::int64_t global_index(const ElementPlace& place, std::int64_t elements,
                                 std::int64_t local) {
  std::int64_t here = local + place.first * place.inner;
  if (place.outer > 1) {
    const std::int64_t row = elements / place.outer, o = local / row;
    here += o * (place.global * place.inner - row);
  }
  if (place.stride == place.run) return here;
  return here + here / place.run * (place.stride - place.run) + place.skip;
}

/// Calls `body(index, local, count)` for each range of local [begin, end) of `elements` that is
/// contiguous in both tensors: local [local, local + count) is [index, index + count) globally.
template <typename Body>
void for_each_stretch(const ElementPlace& place, std::int64_t elements, std::int64_t begin,
                      std::int64_t end, const Body& body) {
  const std::int64_t row = elements / place.outer;
  while (begin < end) {
    const std::int64_t o = begin / row, offset = begin % row;
    std::int64_t count = std::min(end - begin, row - offset);
    if (place.stride > place.run) {
      const std::int64_t here = (o * place.global + place.first) * place.inner + offset;
      count = std::min(count, place.run - here % place.run);
    }
    body(global_index(place, elements, begin), begin, count);
    begin += count;
  }
}

}  // namespace motley::run
