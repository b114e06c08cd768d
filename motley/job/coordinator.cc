#include "motley/job/coordinator.h"

#include <utility>

namespace motley::job {

std::optional<Order> Coordinator::first(std::optional<Order> order) {
  const bool is_change = order && (std::holds_alternative<run::Change>(*order) ||
                                   std::holds_alternative<AddDevice>(*order));
  if (!has_standbys_ || (is_replicated_ && !is_change)) return order;
  is_replicated_ = true;
  held_ = std::move(order);
  return Leave{};
}

std::optional<bool> Coordinator::may_lead(Seconds now) {
  constexpr Seconds kAnswer{2};
  if (!has_standbys_) return true;
  if (!asked_at_) {
    asked_at_ = now;
    is_lead_ = false;
    is_replicated_ = asks_ = true;
    return std::nullopt;
  }
  if (is_lead_) return true;
  return now - *asked_at_ < kAnswer ? std::nullopt : std::optional(false);
}

}  // namespace motley::job
