#include "motley/adapt/first_steps.h"

#include <algorithm>
#include <cmath>

#include "motley/base/json_fields.h"

namespace motley::adapt {
namespace {

/// The excess assumed before any was seen, and its weight in readings.
constexpr double kAssumed = 0.05, kReadings = 1;

}  // namespace

void FirstSteps::observe(double excess, double spread) {
  count_ += 1;
  sum_ += excess;
  squares_ += excess * excess;
  noise_ += 2 * spread * spread;
}

void FirstSteps::add(const FirstSteps& other) {
  count_ += other.count_;
  sum_ += other.sum_;
  squares_ += other.squares_;
  noise_ += other.noise_;
}

double FirstSteps::mean() const { return sum_ / (count_ + kReadings); }

double FirstSteps::deviation() const {
  const double all = count_ + kReadings, m = mean();
  // Subtracts the spread of ordinary steps.
  const double own = std::max(squares_ - count_ * m * m - noise_, 0.0);
  const double square = (own + kReadings * (kAssumed * kAssumed + m * m)) / all;
  return std::sqrt(square * (1 + 1 / all));
}

Json FirstSteps::state() const { return fields_to_json(*this); }

Result<void> FirstSteps::restore(const Json& json, const std::string& where) {
  return restore_fields(json, where, *this);
}

Result<void> FirstSteps::check(const std::string& where) const {
  const bool is_sound = count_ >= 0 && count_ < 1e9 && std::abs(sum_) < 1e9 && squares_ >= 0 &&
                        squares_ < 1e9 && noise_ >= 0 && noise_ < 1e9;
  if (is_sound) return {};
  return usage_error("policy.state", where + ": wanted what first steps can take");
}

}  // namespace motley::adapt
