#pragma once

#include <cstdint>

namespace motley {

/// Functions made of + - * / alone, each rounded as IEEE 754 says: the same bits from every
/// processor and compiler, which those of the C library do not promise.

/// base^n by squaring; n a whole number from 0 on. Within n roundings of the true value.
double exact_power(double base, double n);

/// cos(pi x), x from 0 to 1, to 4e-16.
double exact_cos_pi(double x);

}  // namespace motley
