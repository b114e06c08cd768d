#pragma once

#include <cstdint>

namespace motley {

/// Functions made only of + - * /, each rounded as by IEEE 754: identical bits on every processor
/// and compiler, which the C library does not promise.

/// Returns base^n by squaring, within n roundings of the true value; n is a whole number >= 0.
double exact_power(double base, double n);

/// Returns cos(pi x) to 4e-16, for x from 0 to 1.
double exact_cos_pi(double x);

}  // namespace motley
