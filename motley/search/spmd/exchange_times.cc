#include "motley/search/spmd/exchange_times.h"

#include <cmath>
#include <limits>

#include "motley/program/parts.h"

namespace motley::search {

double ExchangeTimes::at(std::string_view name, double bytes) {
  if (group_.size() < 2) return 0;
  const int below = bytes > 1 ? std::ilogb(bytes) : 0;
  const double low = std::ldexp(1.0, below);
  const double start = at_power(name, below);
  return bytes <= low ? start : start + (at_power(name, below + 1) - start) * (bytes / low - 1);
}

QuickestExchange ExchangeTimes::quickest(std::string_view op, const ExchangeBytes& bytes) {
  QuickestExchange best{std::numeric_limits<double>::infinity()};
  for (const ExchangeMethod method : program::methods_of(op)) {
    const double moved = method == ExchangeMethod::kGrouped ? bytes.grouped : bytes.direct;
    const double seconds = at(program::collective_name(op, method), moved);
    if (seconds < best.seconds) best = {seconds, method};
  }
  return best;
}

double ExchangeTimes::at_power(std::string_view name, int exponent) {
  const auto [known, is_new] = known_.try_emplace({std::string(name), exponent}, 0.0);
  if (is_new) {
    const auto time = model_.collective_time(name, Bytes(std::int64_t{1} << exponent), group_);
    known->second = time ? time->value : std::numeric_limits<double>::infinity();
  }
  return known->second;
}

}  // namespace motley::search
