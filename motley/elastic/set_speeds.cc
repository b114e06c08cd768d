#include "motley/elastic/set_speeds.h"

#include <algorithm>
#include <cmath>

namespace motley::elastic {
namespace {

constexpr double kNewest = 0.2;  // weight of the newest step in a set's average
constexpr double kHiccup = 3;    // a step counts as at most this multiple of the usual

}  // namespace

void add_step(std::vector<MeasuredSet>& sets, const Machines& machines, Seconds took) {
  const auto known = std::ranges::lower_bound(sets, machines, {}, &MeasuredSet::machines);
  if (known == sets.end() || known->machines != machines)
    sets.insert(known, {machines, took.value});
  else
    known->step_s += kNewest * (std::min(took.value, kHiccup * known->step_s) - known->step_s);
}

double find_speed(const Machines& machines, const std::vector<MeasuredSet>& sets,
                  const SpeedTogether& predicted) {
  const auto known = std::ranges::lower_bound(sets, machines, {}, &MeasuredSet::machines);
  if (known != sets.end() && known->machines == machines) return 1 / known->step_s;
  const double speed = predicted(machines);
  if (!(speed > 0) || sets.empty()) return 0;
  const auto far = [&](const MeasuredSet& set) {
    return std::abs(std::log(predicted(set.machines) / speed));
  };
  const auto nearest = std::ranges::min_element(sets, {}, far);
  const double of_nearest = predicted(nearest->machines);
  return of_nearest > 0 ? speed / of_nearest / nearest->step_s : 0;
}

}  // namespace motley::elastic
