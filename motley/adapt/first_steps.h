#pragma once

#include <string>

#include "motley/base/json_forward.h"
#include "motley/base/result.h"

namespace motley::adapt {

/// Learns how much longer the first step at a number of samples takes than the following ones, as
/// the logarithm of their ratio: memory is laid out, kernels are chosen, graphs compiled. So a
/// first step tells less about the device's curve than the next one.
class FirstSteps {
 public:
  /// Records a first step that took exp(excess) times the next one, where steps have this spread.
  void observe(double excess, double spread);
  void add(const FirstSteps& other);

  /// Returns the mean of all first steps; 0 until some are known.
  double mean() const;
  /// Returns the deviation of one from the mean, including the mean's own uncertainty.
  double deviation() const;

  Json state() const;
  Result<void> restore(const Json& json, const std::string& where);
  static void fields(auto& it, auto& field) {
    field("count", it.count_)("sum", it.sum_)("squares", it.squares_)("noise", it.noise_);
  }
  Result<void> check(const std::string& where) const;

 private:
  double count_ = 0, sum_ = 0, squares_ = 0, noise_ = 0;
};

}  // namespace motley::adapt
