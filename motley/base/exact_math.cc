#include "motley/base/exact_math.h"

#include <numbers>

namespace motley {
namespace {

/// Returns the Taylor series `first`, `first` -y / (k + 1)(k + 2), ... for y up to (pi / 4)^2,
/// where the tenth term is below 1e-19.
double alternating_sum(double first, double y, int k) {
  constexpr int kTerms = 10;
  double sum = 1;
  for (int term = kTerms; term > 0; --term) {
    const int at = k + 2 * (term - 1);
    sum = 1 - sum * y / ((at + 1) * (at + 2));
  }
  return first * sum;
}

}  // namespace

double exact_power(double base, double n) {
  double power = 1;
  for (auto left = static_cast<std::int64_t>(n); left > 0; left /= 2) {
    if (left % 2 != 0) power *= base;
    base *= base;
  }
  return power;
}

double exact_cos_pi(double x) {
  if (x > 0.5) return -exact_cos_pi(1 - x);
  const double angle = std::numbers::pi * (x > 0.25 ? 0.5 - x : x);
  if (x > 0.25) return alternating_sum(angle, angle * angle, 1);  // sin(pi / 2 - pi x)
  return alternating_sum(1, angle * angle, 0);
}

}  // namespace motley
