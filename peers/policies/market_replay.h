#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "motley/base/units.h"
#include "peers/policies/deadline_policy.h"

namespace motley::peers {

/// A job in ticks, with the ticks at which spot machines are available; the last one is extended.
struct SpotMarket {
  int work = 0, deadline = 0;      ///< ticks
  int change_over = 0;             ///< from renting until it trains
  double spot = 0, on_demand = 0;  ///< of all machines, per tick
  Seconds tick{300};
  std::vector<bool> is_there;

  bool has_spot(int at) const {
    return !is_there.empty() &&
           is_there[std::min(static_cast<std::size_t>(at), is_there.size() - 1)];
  }
};

/// Makes a policy's job, of one step per tick.
DeadlineJob job_of(const SpotMarket& market, const std::string& kind, const std::string& zone);

struct MarketOutcome {
  double cost = 0;
  int done_at = 0;  ///< tick
  bool is_late = false;
};

/// Returns the cost of a policy made for the job. In each tick it observes a loss, then the price,
/// then its choice is applied; the tick is paid, and trains unless in a change-over.
MarketOutcome replay_market(const SpotMarket& market, policy::Policy& policy);

/// Returns the least cost with advance knowledge: dynamic programming over ticks, remaining work,
/// holding and change-over. On demand where nothing is in time. O(deadline work change_over).
double clairvoyant_cost(const SpotMarket& market);

}  // namespace motley::peers
