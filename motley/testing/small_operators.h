#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "motley/program/program.h"
#include "motley/testing/small_tensors.h"

namespace motley::testing {

/// An operator to run: its arguments, and the shapes of its results.
struct Call {
  std::string name;
  const program::ArgumentList& arguments;
  const std::map<BufferId, Tensor>& values;
  std::vector<Shape> shapes;

  bool has_tensor(std::size_t i) const {
    return std::holds_alternative<BufferId>(arguments[i].value);
  }
  const Tensor& tensor(std::size_t i) const {
    return values.at(std::get<BufferId>(arguments[i].value));
  }
  std::vector<Tensor> tensors(std::size_t i) const {
    std::vector<Tensor> found;
    for (const auto& each : std::get<program::ArgumentList>(arguments[i].value))
      found.push_back(values.at(std::get<BufferId>(each.value)));
    return found;
  }
  static double number(const program::Argument& argument) {
    if (const auto* flag = std::get_if<bool>(&argument.value)) return *flag ? 1 : 0;
    if (const auto* whole = std::get_if<std::int64_t>(&argument.value))
      return static_cast<double>(*whole);
    if (const auto* given = std::get_if<program::NumberArgument>(&argument.value))
      return std::visit([](auto value) { return static_cast<double>(value); }, given->value);
    return std::get<double>(argument.value);
  }
  double number(std::size_t i) const { return number(arguments[i]); }
  std::int64_t integer(std::size_t i) const { return std::get<std::int64_t>(arguments[i].value); }
  Shape integers(std::size_t i) const {
    Shape found;
    for (const auto& each : std::get<program::ArgumentList>(arguments[i].value))
      found.push_back(std::get<std::int64_t>(each.value));
    return found;
  }
};

using Results = std::vector<Tensor>;
using Operators = std::map<std::string, std::function<Results(const Call&)>>;

inline Operators elementwise_operators() {
  using V = const std::vector<double>&;
  Operators made;
  const auto add = [&](const std::string& name, std::size_t operands, const auto& give) {
    made[name] = [operands, give](const Call& call) {
      std::vector<Tensor> given;
      for (std::size_t i = 0; i < operands; ++i) given.push_back(call.tensor(i));
      return Results{broadcast(given, [&](V v) { return give(call, v); })};
    };
  };
  add("aten::add.Tensor", 2, [](const Call& c, V v) { return v[0] + c.number(2) * v[1]; });
  add("aten::sub.Tensor", 2, [](const Call& c, V v) { return v[0] - c.number(2) * v[1]; });
  add("aten::mul.Tensor", 2, [](const Call&, V v) { return v[0] * v[1]; });
  add("aten::div.Tensor", 2, [](const Call&, V v) { return v[0] / v[1]; });
  add("aten::mul.Scalar", 1, [](const Call& c, V v) { return v[0] * c.number(1); });
  add("aten::div.Scalar", 1, [](const Call& c, V v) { return v[0] / c.number(1); });
  add("aten::add.Scalar", 1, [](const Call& c, V v) { return v[0] + c.number(1); });
  add("aten::ne.Scalar", 1, [](const Call& c, V v) { return v[0] != c.number(1) ? 1.0 : 0.0; });
  add("aten::eq.Scalar", 1, [](const Call& c, V v) { return v[0] == c.number(1) ? 1.0 : 0.0; });
  add("aten::clamp_min", 1, [](const Call& c, V v) { return std::max(v[0], c.number(1)); });
  add("aten::relu", 1, [](const Call&, V v) { return std::max(v[0], 0.0); });
  add("aten::sub.Scalar", 1, [](const Call& c, V v) { return v[0] - c.number(1) * c.number(2); });
  add("aten::ge.Scalar", 1, [](const Call& c, V v) { return v[0] >= c.number(1) ? 1.0 : 0.0; });
  add("aten::lt.Scalar", 1, [](const Call& c, V v) { return v[0] < c.number(1) ? 1.0 : 0.0; });
  add("aten::logical_or", 2, [](const Call&, V v) { return v[0] != 0 || v[1] != 0 ? 1.0 : 0.0; });
  add("aten::log", 1, [](const Call&, V v) { return std::log(v[0]); });
  add("aten::neg", 1, [](const Call&, V v) { return -v[0]; });
  add("aten::exp", 1, [](const Call&, V v) { return std::exp(v[0]); });
  add("aten::rsqrt", 1, [](const Call&, V v) { return 1 / std::sqrt(v[0]); });
  add("aten::sqrt", 1, [](const Call&, V v) { return std::sqrt(v[0]); });
  add("aten::zeros_like", 1, [](const Call&, V) { return 0.0; });
  add("aten::threshold_backward", 2,
      [](const Call& c, V v) { return v[1] > c.number(2) ? v[0] : 0.0; });
  add("aten::addcmul", 3, [](const Call& c, V v) { return v[0] + c.number(3) * v[1] * v[2]; });
  add("aten::masked_fill.Scalar", 2,
      [](const Call& c, V v) { return v[1] != 0 ? c.number(2) : v[0]; });
  for (const char* copy : {"aten::clone", "aten::_to_copy"})
    add(copy, 1, [](const Call&, V v) { return v[0]; });
  return made;
}

/// Takes x [samples, classes], labels, class weights or none, reduction (0 none, 1 mean, 2 sum).
inline Results nll_loss(const Call& call) {
  const Tensor &x = call.tensor(0), &labels = call.tensor(1);
  double loss = 0, count = 0;
  for (std::size_t s = 0; s < labels.at.size(); ++s) {
    if (labels.at[s] == call.number(4)) continue;
    const auto label = static_cast<std::size_t>(labels.at[s]);
    const double worth = call.has_tensor(2) ? call.tensor(2).at[label] : 1;
    loss -= worth * x.at[s * static_cast<std::size_t>(x.shape[1]) + label];
    count += worth;
  }
  const bool is_mean = call.integer(3) == 1;
  return {filled({}, is_mean ? loss / count : loss), filled({}, count)};
}

inline Operators loss_operators() {
  using V = const std::vector<double>&;
  Operators made;
  made["aten::nll_loss_forward"] = nll_loss;
  made["aten::nll_loss_backward"] = [](const Call& c) {  // of a sum or mean
    const Tensor &x = c.tensor(1), &labels = c.tensor(2);
    const double each = c.tensor(0).at[0] / (c.integer(4) == 1 ? c.tensor(6).at[0] : 1);
    Tensor made = filled(x.shape, 0);
    for (std::size_t s = 0; s < labels.at.size(); ++s) {
      if (labels.at[s] == c.number(5)) continue;
      const auto label = static_cast<std::size_t>(labels.at[s]);
      const double worth = c.has_tensor(3) ? c.tensor(3).at[label] : 1;
      made.at[s * static_cast<std::size_t>(x.shape[1]) + label] = -worth * each;
    }
    return Results{made};
  };
  made["aten::_log_softmax"] = [](const Call& c) {
    return Results{log_softmax(c.tensor(0), c.integer(1))};
  };
  made["aten::_log_softmax_backward_data"] = [](const Call& c) {
    const Tensor sums = summed(c.tensor(0), {c.integer(2)});
    return Results{broadcast({c.tensor(0), c.tensor(1), sums},
                             [](V v) { return v[0] - std::exp(v[1]) * v[2]; })};
  };
  return made;
}

/// Returns the matrix element that each index element picks, along the columns.
inline std::vector<std::size_t> picked_by(const Tensor& index, const Shape& matrix) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < index.at.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i) / index.shape[1];
    places.push_back(
        static_cast<std::size_t>(row * matrix[1] + static_cast<std::int64_t>(index.at[i])));
  }
  return places;
}

inline Operators indexing_operators() {
  Operators made;
  made["aten::gather"] = [](const Call& c) {
    Results picked = {filled(c.tensor(2).shape, 0)};
    const auto places = picked_by(c.tensor(2), c.tensor(0).shape);
    for (std::size_t i = 0; i < places.size(); ++i) picked[0].at[i] = c.tensor(0).at[places[i]];
    return picked;
  };
  made["aten::scatter.src"] = [](const Call& c) {
    Results whole = {c.tensor(0)};
    const auto places = picked_by(c.tensor(2), c.tensor(0).shape);
    for (std::size_t i = 0; i < places.size(); ++i) whole[0].at[places[i]] = c.tensor(3).at[i];
    return whole;
  };
  made["aten::index.Tensor"] = [](const Call& c) {  // of a vector by one tensor
    Tensor picked = c.tensors(1)[0];
    for (double& each : picked.at) each = c.tensor(0).at[static_cast<std::size_t>(each)];
    return Results{picked};
  };
  return made;
}

}  // namespace motley::testing
