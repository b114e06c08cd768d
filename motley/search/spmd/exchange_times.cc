#include "motley/search/spmd/exchange_times.h"

#include <cmath>
#include <limits>

namespace motley::search {

double ExchangeTimes::at(std::string_view op, double bytes) {
  if (group_.size() < 2) return 0;
  const int below = bytes > 1 ? std::ilogb(bytes) : 0;
  const double low = std::ldexp(1.0, below);
  const double start = at_power(op, below);
  return bytes <= low ? start : start + (at_power(op, below + 1) - start) * (bytes / low - 1);
}

double ExchangeTimes::at_power(std::string_view op, int exponent) {
  const auto [known, is_new] = known_.try_emplace({std::string(op), exponent}, 0.0);
  if (is_new) {
    const auto time = model_.collective_time(op, Bytes(std::int64_t{1} << exponent), group_);
    known->second = time ? time->value : std::numeric_limits<double>::infinity();
  }
  return known->second;
}

}  // namespace motley::search
