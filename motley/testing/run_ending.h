#pragma once

#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

#include "motley/program/program.h"
#include "motley/testing/small_tensors.h"

namespace motley::testing {

/// What a device's step has reported.
struct StepEnd {
  double loss = 0;
  double squares = 0;  ///< of all tensors it summed
};

/// Runs a begin or end of a step, else false. SGD without momentum; norms have factor 1.
class StepEnding {
 public:
  StepEnding(std::map<BufferId, Tensor>& values, StepEnd& end) : values_(values), end_(end) {}

  bool run(const program::Instruction& each) {
    if (each.op == "motley::load") return true;
    if (each.op == "motley::report")
      end_.loss = value(each.arguments[0]).at[0];
    else if (each.op == "motley::assign")
      assign(each);
    else if (each.op == "motley::square_sums")
      sum_squares(each);
    else if (each.op == "motley::gradient_factor")
      for (const BufferId output : each.outputs) values_[output] = filled({1}, 1);
    else if (each.op == "motley::update")
      update(each);
    else
      return false;
    return true;
  }

 private:
  Tensor& value(const program::Argument& argument) {
    return values_.at(std::get<BufferId>(argument.value));
  }
  static const program::ArgumentList& list(const program::Argument& argument) {
    return std::get<program::ArgumentList>(argument.value);
  }

  void assign(const program::Instruction& each) {
    const auto &to = list(each.arguments[0]), &from = list(each.arguments[1]);
    for (std::size_t i = 0; i < to.size(); ++i) {
      EXPECT_EQ(value(to[i]).shape, value(from[i]).shape) << each.label;
      value(to[i]) = value(from[i]);
    }
  }

  void sum_squares(const program::Instruction& each) {
    Tensor sums{{0}, {}};
    for (const program::Argument& one : list(each.arguments[0])) {
      sums.at.push_back(0);
      for (const double x : value(one).at) sums.at.back() += x * x;
      end_.squares += sums.at.back();
    }
    sums.shape[0] = static_cast<std::int64_t>(sums.at.size());
    values_[each.outputs[0]] = std::move(sums);
  }

  /// Updates at the rate in the ninth argument.
  void update(const program::Instruction& each) {
    const auto &parameters = list(each.arguments[1]), &gradients = list(each.arguments[2]);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      Tensor &parameter = value(parameters[i]), &gradient = value(gradients[i]);
      ASSERT_EQ(parameter.shape, gradient.shape) << each.label;
      for (std::size_t e = 0; e < parameter.at.size(); ++e)
        parameter.at[e] -= std::get<double>(each.arguments[8].value) * gradient.at[e];
    }
  }

  std::map<BufferId, Tensor>& values_;
  StepEnd& end_;
};

}  // namespace motley::testing
