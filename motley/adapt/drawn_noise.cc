#include "motley/adapt/drawn_noise.h"

#include <cmath>
#include <cstddef>
#include <numbers>
#include <numeric>
#include <utility>

#include "motley/base/check.h"

namespace motley::adapt {

DrawnNoise::DrawnNoise(std::vector<double> spread, std::uint64_t seed)
    : deviations_(std::move(spread)), random_(seed) {
  MOTLEY_CHECK(!deviations_.empty());
  const double sum = std::accumulate(deviations_.begin(), deviations_.end(), 0.0);
  for (double& each : deviations_) each = std::sqrt(each / sum);
}

double DrawnNoise::draw_normal() {
  has_kept_ = !has_kept_;
  if (!has_kept_) return kept_;
  const double radius = std::sqrt(-2 * std::log(1 - random_.uniform()));
  const double angle = 2 * std::numbers::pi * random_.uniform();
  kept_ = radius * std::sin(angle);
  return radius * std::cos(angle);
}

policy::NoiseSeen DrawnNoise::draw(const NoiseMoments& moments,
                                   const std::vector<std::int64_t>& sizes) {
  policy::NoiseSeen seen;
  const double true_part =
      std::sqrt(moments.squared_gradient / static_cast<double>(deviations_.size()));
  std::vector<double> whole(deviations_.size(), true_part);
  const double batch =
      static_cast<double>(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}));
  for (const std::int64_t size : sizes) {
    const double samples = static_cast<double>(size);
    const double scale = std::sqrt(moments.variance / samples);
    double norm = 0;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      const double noise = scale * deviations_[i] * draw_normal();
      norm += (true_part + noise) * (true_part + noise);
      whole[i] += samples / batch * noise;
    }
    seen.pieces.push_back({size, norm});
  }
  for (const double each : whole) seen.squared_norm += each * each;
  return seen;
}

}  // namespace motley::adapt
