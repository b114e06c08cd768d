#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace motley {

/// How a collective runs if members have parts of their own: n members, B elements in all, the
/// largest part m, the smallest s. Formulas: a member's traffic each way (all-gather,
/// reduce-scatter).
enum class ExchangeMethod : std::uint8_t {
  kNative,        ///< all pairs at once, each with just its elements: (n - 1) m
  kPadded,        ///< the library's even collective on parts padded to m: (n - 1) m
  kGrouped,       ///< by sends of just the elements: around the ring B - s; to each its slice
  kHierarchical,  ///< within hosts and between them, level by level
};
inline constexpr std::array kExchangeMethods = {ExchangeMethod::kNative, ExchangeMethod::kPadded,
                                                ExchangeMethod::kGrouped,
                                                ExchangeMethod::kHierarchical};

constexpr std::string_view exchange_method_name(ExchangeMethod method) {
  constexpr std::string_view kNames[] = {"native", "padded", "grouped", "hierarchical"};
  return kNames[static_cast<std::size_t>(method)];
}

constexpr std::optional<ExchangeMethod> find_exchange_method(std::string_view name) {
  for (const ExchangeMethod method : kExchangeMethods)
    if (exchange_method_name(method) == name) return method;
  return std::nullopt;
}

}  // namespace motley
