#include "motley/elastic/checkpoint_interval.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace motley::elastic {
namespace {

constexpr double kForeverSeconds = std::numeric_limits<double>::infinity();

}  // namespace

AgeHazard hazard_ahead(const std::vector<AgedHazard>& machines) {
  AgeHazard sum;
  sum.ages.push_back(Seconds(0));
  for (const AgedHazard& machine : machines)
    for (const Seconds age : machine.hazard.ages)
      if (age > machine.age) sum.ages.push_back(age - machine.age);
  std::sort(sum.ages.begin(), sum.ages.end());
  sum.ages.erase(std::unique(sum.ages.begin(), sum.ages.end()), sum.ages.end());
  for (const Seconds ahead : sum.ages) {
    double& rate = sum.per_second.emplace_back(0);
    for (const AgedHazard& machine : machines) rate += machine.hazard.at(machine.age + ahead);
  }
  return sum;
}

AgeHazard mirrored(const AgeHazard& one, const AgeHazard& other, Seconds recovery) {
  AgeHazard both = hazard_ahead({{one, Seconds(0)}, {other, Seconds(0)}});
  for (std::size_t i = 0; i < both.ages.size(); ++i)
    both.per_second[i] = 2 * one.at(both.ages[i]) * other.at(both.ages[i]) * recovery.value;
  return both;
}

Seconds checkpoint_interval(const AgeHazard& ahead, Seconds until, const SavingCosts& costs) {
  const double save = costs.save.value;
  const double heard = costs.notice >= costs.save ? 0 : 1;  // of the losses by ages
  double best = kForeverSeconds, least = kForeverSeconds;
  double lost = 0;  // integral of u rate(u) up to the piece
  for (std::size_t i = 0; i < ahead.ages.size(); ++i) {
    const double from = ahead.ages[i].value, rate = heard * ahead.per_second[i] + costs.background;
    const double to = i + 1 < ahead.ages.size() ? ahead.ages[i + 1].value : kForeverSeconds;
    const double before = save + lost - rate * from * from / 2;
    // before / tau + rate tau / 2 falls, then grows; where `before` < 0 it only grows.
    double tau = rate > 0 ? std::sqrt(std::max(0.0, 2 * before / rate)) : to;
    tau = std::clamp(tau, from, to);
    const double wasted = tau == kForeverSeconds ? 0
                          : tau > 0              ? before / tau + rate * tau / 2
                                                 : kForeverSeconds;
    if (wasted < least) {
      least = wasted;
      best = tau;
    }
    if (to < kForeverSeconds) lost += rate * (to * to - from * from) / 2;
  }
  const double last = std::max(0.0, until.value - save);
  return Seconds(std::min(best, last));
}

}  // namespace motley::elastic
