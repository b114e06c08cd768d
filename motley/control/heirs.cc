#include "motley/control/heirs.h"

#include <utility>

namespace motley::control {

std::optional<Order> Heirs::first(std::optional<Order> order, const std::function<Json()>& will) {
  const bool is_change = order && (std::holds_alternative<run::Change>(*order) ||
                                   std::holds_alternative<AddDevice>(*order));
  if (!are_there_ || (has_left_ && !is_change)) return order;
  has_left_ = true;
  held_ = std::move(order);
  return Leave{will()};
}

std::optional<bool> Heirs::may_lead(Seconds now) {
  constexpr Seconds kAnswer{2};
  if (!are_there_) return true;
  if (!asked_at_) {
    asked_at_ = now;
    is_lead_ = false;
    has_left_ = asks_ = true;
    return std::nullopt;
  }
  if (is_lead_) return true;
  return now - *asked_at_ < kAnswer ? std::nullopt : std::optional(false);
}

}  // namespace motley::control
