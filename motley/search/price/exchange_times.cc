#include "motley/search/price/exchange_times.h"

#include <algorithm>
#include <limits>

#include "motley/program/parts.h"

namespace motley::search {

double least_seconds(const std::vector<cost::CollectiveCurve>& curves, double bytes) {
  double least = std::numeric_limits<double>::infinity();
  for (const cost::CollectiveCurve& curve : curves) least = std::min(least, curve.at(bytes).value);
  return least;
}

Result<double> ExchangeTimes::find(std::string_view name, double bytes) {
  if (group_.size() < 2) return 0.0;
  auto known = known_.find(name);
  if (known == known_.end())
    known = known_.emplace(name, model_.collective_curves(name, group_)).first;
  if (!known->second) return tl::make_unexpected(known->second.error());
  return least_seconds(*known->second, bytes);
}

double ExchangeTimes::at(std::string_view name, double bytes) {
  return find(name, bytes).value_or(std::numeric_limits<double>::infinity());
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

}  // namespace motley::search
