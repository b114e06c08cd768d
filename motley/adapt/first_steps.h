#pragma once

#include <string>

#include "motley/base/json_forward.h"
#include "motley/base/result.h"

namespace motley::adapt {

/// What the first step at a number of samples takes beyond those that follow it there, as a
/// logarithm of their ratio: memory is laid out anew, kernels are chosen, graphs compiled. So it
/// says less of the device's curve than the next one.
class FirstSteps {
 public:
  /// A first step took exp(excess) times the next one, of steps that spread by so much.
  void observe(double excess, double spread);
  void add(const FirstSteps& other);

  /// Of all first steps; 0 until some are known.
  double mean() const;
  /// What one may be off that mean, its own uncertainty included.
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
