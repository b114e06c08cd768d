#include "motley/simulate/distribution.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace motley::simulate {

Distribution::Distribution(std::vector<double> samples) : samples_(std::move(samples)) {
  std::sort(samples_.begin(), samples_.end());
}

double Distribution::mean() const {
  if (samples_.empty()) return 0;
  return std::accumulate(samples_.begin(), samples_.end(), 0.0) / static_cast<double>(count());
}

double Distribution::deviation() const {
  if (count() < 2) return 0;
  const double middle = mean();
  double sum = 0;
  for (const double sample : samples_) sum += (sample - middle) * (sample - middle);
  return std::sqrt(sum / static_cast<double>(count() - 1));
}

double Distribution::quantile(double p) const {
  if (samples_.empty()) return 0;
  const double place = std::clamp(p, 0.0, 1.0) * static_cast<double>(count() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, count() - 1);
  return std::lerp(samples_[below], samples_[above], place - static_cast<double>(below));
}

}  // namespace motley::simulate
