#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "motley/base/units.h"
#include "peers/policies/deadline_policy.h"

namespace motley::peers {

/// A job in ticks, and at which of them there are spot machines; behind the last: as there.
struct SpotMarket {
  int work = 0, deadline = 0;      ///< ticks
  int change_over = 0;             ///< from renting until it trains
  double spot = 0, on_demand = 0;  ///< of all machines a tick
  Seconds tick{300};
  std::vector<bool> is_there;

  bool has_spot(int at) const {
    return !is_there.empty() &&
           is_there[std::min(static_cast<std::size_t>(at), is_there.size() - 1)];
  }
};

/// The job that a policy is made for: a step a tick.
DeadlineJob job_of(const SpotMarket& market, const std::string& kind, const std::string& zone);

struct MarketOutcome {
  double cost = 0;
  int done_at = 0;  ///< tick
  bool is_late = false;
};

/// What a policy that was made for the job pays. In each tick it is told of a loss, then of the
/// price, then does what it chose; the tick is paid, and trains where the change-over is over.
MarketOutcome replay_market(const SpotMarket& market, policy::Policy& policy);

/// The least that anybody could have paid who knew the trace beforehand: dynamic programming over
/// ticks, work left, what is rented and the change-over left. On demand from the start where
/// nothing is in time. O(deadline work change_over).
double clairvoyant_cost(const SpotMarket& market);

}  // namespace motley::peers
