#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace motley {

/// How a collective whose members have parts of their own is carried out. n members, B elements in
/// all, the largest part m, the smallest s; what moves over a member's link each way is given for
/// all-gather and reduce-scatter.
enum class ExchangeMethod : std::uint8_t {
  kNative,        ///< every pair at once, each with just its elements: (n - 1) m
  kPadded,        ///< the library's even collective on parts filled up to m: (n - 1) m
  kGrouped,       ///< by sends of just the elements: around the ring B - s; to each its slice
  kHierarchical,  ///< inside hosts and between them, one level after the other
};
inline constexpr std::array kExchangeMethods = {ExchangeMethod::kNative, ExchangeMethod::kPadded,
                                                ExchangeMethod::kGrouped,
                                                ExchangeMethod::kHierarchical};

constexpr std::string_view exchange_method_name(ExchangeMethod method) {
  constexpr std::string_view kNames[] = {"native", "padded", "grouped", "hierarchical"};
  return kNames[static_cast<std::size_t>(method)];
}

/// The inverse.
constexpr std::optional<ExchangeMethod> find_exchange_method(std::string_view name) {
  for (const ExchangeMethod method : kExchangeMethods)
    if (exchange_method_name(method) == name) return method;
  return std::nullopt;
}

}  // namespace motley
