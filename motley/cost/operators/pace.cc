#include "motley/cost/operators/pace.h"

#include <algorithm>
#include <cmath>

#include "motley/base/check.h"

namespace motley::cost {

Pace::Pace(std::vector<Sample> samples) {
  MOTLEY_CHECK(!samples.empty());
  std::stable_sort(samples.begin(), samples.end(),
                   [](const Sample& a, const Sample& b) { return a.compute < b.compute; });
  for (const Sample& sample : samples)  // keeps the first of equal amounts
    if (samples_.empty() || samples_.back().compute < sample.compute) samples_.push_back(sample);
}

double Pace::at(Seconds compute) const {
  const auto right = std::find_if(samples_.begin(), samples_.end(),
                                  [&](const Sample& sample) { return compute <= sample.compute; });
  if (right == samples_.begin()) return samples_.front().speed;
  if (right == samples_.end()) return samples_.back().speed;
  const Sample& left = *(right - 1);
  const double share = std::log(compute.value / left.compute.value) /
                       std::log(right->compute.value / left.compute.value);
  return left.speed + share * (right->speed - left.speed);
}

double Pace::fastest() const {
  double most = 0;
  for (const Sample& sample : samples_) most = std::max(most, sample.speed);
  return most;
}

Pace Pace::at_most(double speed) const {
  Pace limited = *this;
  for (Sample& sample : limited.samples_) sample.speed = std::min(sample.speed, speed);
  return limited;
}

}  // namespace motley::cost
