#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "motley/graph/rules/strategy.h"

namespace motley::testing {

using Shape = std::vector<std::int64_t>;

/// A tensor of any dtype, in double precision.
struct Tensor {
  Shape shape;
  std::vector<double> at;
};

inline std::int64_t count_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}
inline Tensor filled(Shape shape, double with) {
  const auto count = static_cast<std::size_t>(count_of(shape));
  return {std::move(shape), std::vector<double>(count, with)};
}

/// Returns [before, extent, after] of a dimension; negative ones count from the back.
inline graph::Slab seen(const Shape& shape, std::int64_t dim) {
  const auto at = shape.begin() + (dim < 0 ? dim + static_cast<std::int64_t>(shape.size()) : dim);
  return {count_of({shape.begin(), at}), *at, count_of({at + 1, shape.end()})};
}

/// Returns `count` rows of [before, extent, after] from `begin` on, flat.
inline std::vector<double> rows_of(const std::vector<double>& from, const graph::Slab& slab,
                                   std::int64_t begin, std::int64_t count) {
  std::vector<double> rows;
  for (std::int64_t b = 0; b < slab.before; ++b) {
    const auto first = from.begin() + (b * slab.extent + begin) * slab.after;
    rows.insert(rows.end(), first, first + count * slab.after);
  }
  return rows;
}

/// Inverts rows_of: joins consecutive parts of `extents` rows in `from` into one tensor.
inline std::vector<double> joined_rows(const std::vector<double>& from, const graph::Slab& slab,
                                       const Shape& extents) {
  std::vector<double> whole(from.size());
  const std::int64_t extent = std::accumulate(extents.begin(), extents.end(), std::int64_t{0});
  auto next = from.begin();
  std::int64_t begin = 0;
  for (const std::int64_t rows : extents) {
    for (std::int64_t b = 0; b < slab.before; ++b, next += rows * slab.after)
      std::copy(next, next + rows * slab.after, whole.begin() + (b * extent + begin) * slab.after);
    begin += rows;
  }
  return whole;
}

/// Applies `give` element by element, broadcasting operands as numpy does.
inline Tensor broadcast(const std::vector<Tensor>& operands,
                        const std::function<double(const std::vector<double>&)>& give) {
  std::size_t dims = 0;
  for (const Tensor& each : operands) dims = std::max(dims, each.shape.size());
  Shape shape(dims, 1);
  for (const Tensor& each : operands)
    for (std::size_t d = 1; d <= each.shape.size(); ++d)
      if (each.shape[each.shape.size() - d] != 1)
        shape[dims - d] = each.shape[each.shape.size() - d];
  Tensor made = filled(shape, 0);
  std::vector<double> given(operands.size());
  for (std::size_t i = 0; i < made.at.size(); ++i) {
    for (std::size_t o = 0; o < operands.size(); ++o) {
      std::int64_t rest = static_cast<std::int64_t>(i), place = 0, stride = 1;
      const Shape& own = operands[o].shape;
      for (std::size_t d = 1; d <= own.size(); ++d) {
        const std::int64_t size = own[own.size() - d];
        if (size != 1) place += rest % shape[dims - d] * stride;
        rest /= shape[dims - d];
        stride *= size;
      }
      given[o] = operands[o].at[static_cast<std::size_t>(place)];
    }
    made.at[i] = give(given);
  }
  return made;
}

inline Tensor transposed(const Tensor& x, std::int64_t a, std::int64_t b) {
  if (a > b) std::swap(a, b);
  Shape shape = x.shape;
  std::swap(shape[static_cast<std::size_t>(a)], shape[static_cast<std::size_t>(b)]);
  Tensor made = filled(shape, 0);
  const graph::Slab outer = seen(x.shape, a), inner = seen(x.shape, b);
  const std::int64_t between = outer.after / (inner.extent * inner.after);
  std::size_t next = 0;
  for (std::int64_t f = 0; f < outer.before; ++f)
    for (std::int64_t j = 0; j < inner.extent; ++j)
      for (std::int64_t m = 0; m < between; ++m)
        for (std::int64_t i = 0; i < outer.extent; ++i)
          for (std::int64_t l = 0; l < inner.after; ++l)
            made.at[next++] = x.at[static_cast<std::size_t>(
                (((f * outer.extent + i) * between + m) * inner.extent + j) * inner.after + l)];
  return made;
}

inline Tensor product(const Tensor& a, const Tensor& b) {
  Tensor made = filled({a.shape[0], b.shape[1]}, 0);
  for (std::int64_t i = 0; i < a.shape[0]; ++i)
    for (std::int64_t j = 0; j < b.shape[1]; ++j)
      for (std::int64_t k = 0; k < a.shape[1]; ++k)
        made.at[static_cast<std::size_t>(i * b.shape[1] + j)] +=
            a.at[static_cast<std::size_t>(i * a.shape[1] + k)] *
            b.at[static_cast<std::size_t>(k * b.shape[1] + j)];
  return made;
}

using Fold = std::function<double(double, double)>;

/// Folds dimensions, which stay with size 1; all if none is named.
inline Tensor folded(Tensor x, Shape dims, double start, const Fold& fold) {
  if (dims.empty()) {
    dims.resize(x.shape.size());
    std::iota(dims.begin(), dims.end(), 0);
  }
  for (const std::int64_t dim : dims) {
    const graph::Slab slab = seen(x.shape, dim);
    x.shape[static_cast<std::size_t>(dim < 0 ? dim + static_cast<std::int64_t>(x.shape.size())
                                             : dim)] = 1;
    Tensor made = filled(x.shape, start);
    for (std::int64_t i = 0; i < slab.extent; ++i) {
      const std::vector<double> row = rows_of(x.at, slab, i, 1);
      std::transform(row.begin(), row.end(), made.at.begin(), made.at.begin(), fold);
    }
    x = std::move(made);
  }
  return x;
}

inline Tensor summed(Tensor x, Shape dims) {
  return folded(std::move(x), std::move(dims), 0, std::plus<>());
}

inline Tensor variance(const Tensor& x, const Shape& dims, double correction) {
  const Tensor sum = summed(x, dims);
  const double count = static_cast<double>(x.at.size()) / static_cast<double>(sum.at.size());
  const Tensor squares = broadcast({x, sum}, [&](const std::vector<double>& v) {
    return (v[0] - v[1] / count) * (v[0] - v[1] / count);
  });
  return broadcast({summed(squares, dims)},
                   [&](const std::vector<double>& v) { return v[0] / (count - correction); });
}

inline Tensor log_softmax(const Tensor& x, std::int64_t dim) {
  using V = const std::vector<double>&;
  const Tensor sums = summed(broadcast({x}, [](V v) { return std::exp(v[0]); }), {dim});
  return broadcast({x, sums}, [](V v) { return v[0] - std::log(v[1]); });
}

}  // namespace motley::testing
