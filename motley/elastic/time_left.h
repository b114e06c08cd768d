#pragma once

#include <functional>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/elastic/availability.h"

namespace motley::elastic {

/// Time from the request of a machine, or of a lost one's replacement, until it trains: cold
/// (rented, booted, loaded) or warm (present and loaded).
struct StartTimes {
  Seconds cold{80}, warm{20};
  bool operator==(const StartTimes&) const = default;
};

/// A machine of a training after an event. Times count from now.
struct MachineAhead {
  AvailabilityTrace availability;  ///< when it trains
  Seconds paid_from;               ///< a replacement is paid for while it starts
  double price_per_hour = 0;
};

/// Returns a machine that is requested now and trains after `start`.
MachineAhead replacement(Seconds start, double price_per_hour);

struct LeftToDo {
  Seconds time;
  double cost = 0;
};

/// Returns time and cost until `steps` more steps are done (availability.h: speed is constant
/// between events). Every machine is paid for until it leaves or all is done. Errors as `replay`;
/// usage error `elastic.left` where the steps are never done.
///
/// Example: one machine does 5 steps/s, its replacement trains from 20 s on; 300 steps: 100 in 20
/// s, 200 at 10 steps/s: 40 s.
Result<LeftToDo> estimate_left(const std::vector<MachineAhead>& machines, double steps,
                               const std::function<double(const std::vector<std::size_t>&)>& speed);

}  // namespace motley::elastic
