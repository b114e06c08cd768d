#pragma once

#include <algorithm>
#include <cstdint>

namespace motley::run {

// This header is also compiled for GPUs, at run time: see philox.h.

/// Where the elements of a local tensor stand in the global one. The tensor is seen as [outer,
/// part, inner], of whose middle `global` the part is [first, first + part): element (o, s, j) has
/// place (o * global + first + s) * inner + j in the micro-batch. A micro-batch has of the whole
/// batch's elements, seen as rows of `stride`, the `run` neighbours behind the first `skip` of
/// each.
struct ElementPlace {
  std::int64_t outer = 1, inner = 1;
  std::int64_t first = 0, global = 0;
  std::int64_t run = 1, skip = 0, stride = 1;
};

/// The place of local element `local` of `elements` in the global tensor.
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

/// Calls `body(index, local, count)` for stretches of neighbours in the local tensor and in the
/// global one: elements [local, local + count) of `elements` are [index, index + count) in all.
/// Only [begin, end) of the local ones.
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
