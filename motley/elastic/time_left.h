#pragma once

#include <functional>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/elastic/availability.h"

namespace motley::elastic {

/// How long a machine takes from being asked for until it trains, and after which a lost one's
/// replacement does: cold (rented, booted, loaded) or warm (it is there and has loaded).
struct StartTimes {
  Seconds cold{80}, warm{20};
  bool operator==(const StartTimes&) const = default;
};

/// A machine of a training that something has just happened to. Times count from now.
struct MachineAhead {
  AvailabilityTrace availability;  ///< when it trains
  Seconds paid_from;               ///< a replacement is paid for while it starts
  double price_per_hour = 0;
};

/// A machine that is asked for now and trains after `start`.
MachineAhead replacement(Seconds start, double price_per_hour);

struct LeftToDo {
  Seconds time;
  double cost = 0;
};

/// Time and cost until `steps` more steps are done (availability.h: speed is constant between
/// events). Every machine is paid for until it leaves or all is done. Errors as `replay`; a usage
/// error `elastic.left` where the steps are never done.
///
/// Example: one machine does 5 steps/s, a replacement of it trains from 20 s on; 300 steps: 100 in
/// 20 s, 200 at 10 steps/s: 40 s.
Result<LeftToDo> estimate_left(const std::vector<MachineAhead>& machines, double steps,
                               const std::function<double(const std::vector<std::size_t>&)>& speed);

}  // namespace motley::elastic
