#pragma once

#include <compare>
#include <cstdint>

namespace motley {

/// A number with a unit. Equal units add and compare; scaling by a plain number keeps the unit.
template <typename Tag, typename Rep>
struct Quantity {
  Rep value{};

  constexpr Quantity() = default;
  constexpr explicit Quantity(Rep v) : value(v) {}
  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity& operator+=(Quantity o) {
    value += o.value;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity o) {
    value -= o.value;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) {
    return Quantity(a.value + b.value);
  }
  friend constexpr Quantity operator-(Quantity a, Quantity b) {
    return Quantity(a.value - b.value);
  }
  friend constexpr Quantity operator*(Quantity a, Rep s) { return Quantity(a.value * s); }
  friend constexpr Quantity operator*(Rep s, Quantity a) { return Quantity(a.value * s); }
  friend constexpr Quantity operator/(Quantity a, Rep s) { return Quantity(a.value / s); }
  friend constexpr double operator/(Quantity a, Quantity b) {
    return static_cast<double>(a.value) / static_cast<double>(b.value);
  }
};

using Seconds = Quantity<struct SecondsTag, double>;
using Bytes = Quantity<struct BytesTag, std::int64_t>;
using Flops = Quantity<struct FlopsTag, double>;
using BytesPerSecond = Quantity<struct BytesPerSecondTag, double>;

/// Returns the time to move `bytes` at `rate`, which must be positive.
constexpr Seconds operator/(Bytes bytes, BytesPerSecond rate) {
  return Seconds(static_cast<double>(bytes.value) / rate.value);
}

}  // namespace motley
