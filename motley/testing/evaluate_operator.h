#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "motley/testing/small_operators.h"

namespace motley::testing {

inline Results joined_along(std::vector<Tensor> parts, std::int64_t dim) {
  Tensor made{parts[0].shape, {}};
  Shape extents;
  std::vector<double> flat;
  for (const Tensor& part : parts) {
    extents.push_back(part.shape[static_cast<std::size_t>(dim)]);
    flat.insert(flat.end(), part.at.begin(), part.at.end());
  }
  made.at = joined_rows(flat, seen(made.shape, dim), extents);
  made.shape[static_cast<std::size_t>(dim)] =
      std::accumulate(extents.begin(), extents.end(), std::int64_t{0});
  return {made};
}

inline Operators moving_operators() {
  Operators made;
  made["aten::view"] = [](const Call& c) { return Results{{c.integers(1), c.tensor(0).at}}; };
  made["aten::t"] = [](const Call& c) { return Results{transposed(c.tensor(0), 0, 1)}; };
  made["aten::transpose.int"] = [](const Call& c) {
    return Results{transposed(c.tensor(0), c.integer(1), c.integer(2))};
  };
  made["aten::expand"] = [](const Call& c) {
    return Results{broadcast({c.tensor(0), filled(c.integers(1), 0)},
                             [](const std::vector<double>& v) { return v[0]; })};
  };
  made["aten::select.int"] = [](const Call& c) {
    Tensor x = c.tensor(0);
    x.at = rows_of(x.at, seen(x.shape, c.integer(1)), c.integer(2), 1);
    x.shape.erase(x.shape.begin() + c.integer(1));
    return Results{x};
  };
  for (const char* name : {"aten::unsqueeze", "aten::squeeze.dim"})
    made[name] = [](const Call& c) { return Results{{c.shapes[0], c.tensor(0).at}}; };
  made["aten::cat"] = [](const Call& c) { return joined_along(c.tensors(0), c.integer(1)); };
  made["aten::stack"] = [](const Call& c) {
    std::vector<Tensor> parts = c.tensors(0);
    for (Tensor& part : parts) part.shape.insert(part.shape.begin() + c.integer(1), 1);
    return joined_along(parts, c.integer(1));
  };
  made["aten::split_with_sizes"] = [](const Call& c) {
    Results parts;
    std::int64_t begin = 0;
    for (const std::int64_t rows : c.integers(1)) {
      Tensor& part = parts.emplace_back(c.tensor(0));
      part.at = rows_of(part.at, seen(part.shape, c.integer(2)), begin, rows);
      part.shape[static_cast<std::size_t>(c.integer(2))] = rows;
      begin += rows;
    }
    return parts;
  };
  made["aten::zeros"] = [](const Call& c) { return Results{filled(c.integers(0), 0)}; };
  made["aten::full"] = [](const Call& c) { return Results{filled(c.integers(0), c.number(1))}; };
  return made;
}

inline Operators reducing_operators() {
  Operators made;
  made["aten::mm"] = [](const Call& c) { return Results{product(c.tensor(0), c.tensor(1))}; };
  made["aten::addmm"] = [](const Call& c) {
    return Results{broadcast({c.tensor(0), product(c.tensor(1), c.tensor(2))},
                             [](const std::vector<double>& v) { return v[0] + v[1]; })};
  };
  made["aten::sum"] = [](const Call& c) { return Results{{{}, summed(c.tensor(0), {}).at}}; };
  made["aten::sum.dim_IntList"] = [](const Call& c) {
    return Results{{c.shapes[0], summed(c.tensor(0), c.integers(1)).at}};
  };
  made["aten::mean"] = [](const Call& c) {
    const Tensor& x = c.tensor(0);
    return Results{filled({}, summed(x, {}).at[0] / static_cast<double>(x.at.size()))};
  };
  made["aten::var_mean.correction"] = [](const Call& c) {
    const Tensor& x = c.tensor(0);
    const Tensor sum = summed(x, c.integers(1));
    const double count = static_cast<double>(x.at.size()) / static_cast<double>(sum.at.size());
    Tensor mean{c.shapes[1], sum.at};
    for (double& each : mean.at) each /= count;
    return Results{{c.shapes[0], variance(x, c.integers(1), c.number(2)).at}, mean};
  };
  made["aten::native_layer_norm"] = [](const Call& c) {  // over the last dimension
    const Tensor& x = c.tensor(0);
    const double count = static_cast<double>(x.shape.back()), eps = c.number(4);
    Tensor mean = summed(x, {-1}), scale = variance(x, {-1}, 0);
    for (double& each : mean.at) each /= count;
    for (double& each : scale.at) each = 1 / std::sqrt(each + eps);
    const auto norm = [](const std::vector<double>& v) {
      return (v[0] - v[1]) * v[2] * v[3] + v[4];
    };
    return Results{broadcast({x, mean, scale, c.tensor(2), c.tensor(3)}, norm), mean, scale};
  };
  made["aten::amax"] = [](const Call& c) {
    const auto most = [](double a, double b) { return std::max(a, b); };
    const double least = -std::numeric_limits<double>::infinity();
    return Results{{c.shapes[0], folded(c.tensor(0), c.integers(1), least, most).at}};
  };
  for (const char* name : {"aten::var.correction", "aten::std.correction"})
    made[name] = [](const Call& c) {
      Results spread = {variance(c.tensor(0), c.integers(1), c.number(2))};
      if (c.name == "aten::std.correction")
        for (double& each : spread[0].at) each = std::sqrt(each);
      spread[0].shape = c.shapes[0];
      return spread;
    };
  return made;
}

inline Operators own_operators() {
  Operators made;
  made["motley::cut"] = [](const Call& c) {
    Tensor flat;
    const Shape extents = c.integers(2);
    graph::Slab slab{c.integer(1), std::accumulate(extents.begin(), extents.end(), std::int64_t{0}),
                     c.integer(3)};
    std::int64_t begin = 0;
    for (const std::int64_t rows : extents) {
      const std::vector<double> part = rows_of(c.tensor(0).at, slab, begin, rows);
      flat.at.insert(flat.at.end(), part.begin(), part.end());
      begin += rows;
    }
    flat.shape = {static_cast<std::int64_t>(flat.at.size())};
    return Results{flat};
  };
  made["motley::join"] = [](const Call& c) {
    const graph::Slab slab{c.integer(1), 0, c.integer(3)};
    return Results{{c.shapes[0], joined_rows(c.tensor(0).at, slab, c.integers(2))}};
  };
  made["motley::part"] = [](const Call& c) {
    const std::int64_t before = c.integer(1), after = c.integer(3);
    const auto elements = static_cast<std::int64_t>(c.tensor(0).at.size());
    return Results{{c.shapes[0], rows_of(c.tensor(0).at, {before, elements / before / after, after},
                                         c.integer(2), count_of(c.shapes[0]) / before / after)}};
  };
  made["motley::pack"] = [](const Call& c) {
    Tensor flat;
    for (const Tensor& each : c.tensors(0))
      flat.at.insert(flat.at.end(), each.at.begin(), each.at.end());
    flat.shape = {static_cast<std::int64_t>(flat.at.size())};
    return Results{flat};
  };
  made["motley::unpack"] = [](const Call& c) {
    Results parts;
    auto next = c.tensor(0).at.begin();
    for (const Shape& shape : c.shapes) {
      parts.push_back({shape, {next, next + count_of(shape)}});
      next += count_of(shape);
    }
    return parts;
  };
  made["motley::label_count"] = [](const Call& c) {
    double count = 0;
    for (const double label : c.tensor(0).at)
      if (label != c.number(2))
        count += c.has_tensor(1) ? c.tensor(1).at[static_cast<std::size_t>(label)] : 1;
    return Results{filled({}, count)};
  };
  made["motley::tangent"] = [](const Call&) { return Results{filled({}, 1)}; };
  made["motley::ballot"] = [](const Call&) { return Results{filled({1}, 1)}; };
  made["motley::stop_request"] = [](const Call&) { return Results{filled({1}, 0)}; };
  return made;
}

/// Evaluates an operator; fails for an unknown one, or where a shape is not as declared.
inline Results evaluate(const Call& call) {
  static const Operators known = [] {
    Operators all = elementwise_operators();
    for (const Operators& more : {moving_operators(), indexing_operators(), reducing_operators(),
                                  loss_operators(), own_operators()})
      all.insert(more.begin(), more.end());
    return all;
  }();
  const auto found = known.find(call.name);
  if (found == known.end()) {
    ADD_FAILURE() << "no test evaluates " << call.name;
    Results none;
    for (const Shape& shape : call.shapes) none.push_back(filled(shape, 0));
    return none;
  }
  Results made = found->second(call);
  for (std::size_t r = 0; r < call.shapes.size(); ++r)
    EXPECT_EQ(made[r].shape, call.shapes[r]) << call.name << ", result " << r;
  return made;
}

}  // namespace motley::testing
