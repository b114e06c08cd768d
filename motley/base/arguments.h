#pragma once

#include <cmath>
#include <string>

namespace motley {

// Arguments of operators, shared by graphs and programs.

struct NoneArgument {
  bool operator==(const NoneArgument&) const = default;
};
/// An argument such as dtype(f32), layout(strided), device(local), memory_format(contiguous).
struct KeywordArgument {
  std::string kind, word;
  bool operator==(const KeywordArgument&) const = default;
};
/// An argument complex(REAL, IMAGINARY).
struct ComplexArgument {
  double real = 0, imaginary = 0;
  bool operator==(const ComplexArgument& other) const {  // NaN equals NaN
    const auto equal = [](double a, double b) {
      return a == b || (std::isnan(a) && std::isnan(b));
    };
    return equal(real, other.real) && equal(imaginary, other.imaginary);
  }
};

}  // namespace motley
