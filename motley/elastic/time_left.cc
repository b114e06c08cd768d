#include "motley/elastic/time_left.h"

#include <algorithm>
#include <cmath>

namespace motley::elastic {

MachineAhead replacement(Seconds start, double price_per_hour) {
  return {
      .availability = {.from = start}, .paid_from = Seconds(0), .price_per_hour = price_per_hour};
}

Result<LeftToDo> estimate_left(
    const std::vector<MachineAhead>& machines, double steps,
    const std::function<double(const std::vector<std::size_t>&)>& speed) {
  std::vector<AvailabilityTrace> presences;
  for (const MachineAhead& machine : machines) presences.push_back(machine.availability);
  MOTLEY_ASSIGN(const Seconds time, replay(presences, steps, speed));
  if (!std::isfinite(time.value))
    return usage_error("elastic.left", "nobody is left who could do the rest of the steps");
  LeftToDo left{time, 0};
  for (const MachineAhead& machine : machines) {
    const Seconds until = std::min(time, machine.availability.until);
    left.cost += machine.price_per_hour / 3600 * std::max(0.0, (until - machine.paid_from).value);
  }
  return left;
}

}  // namespace motley::elastic
