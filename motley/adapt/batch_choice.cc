#include "motley/adapt/batch_choice.h"

#include <algorithm>
#include <cmath>

#include "motley/adapt/learning_rate.h"

namespace motley::adapt {

std::optional<BatchChoice> choose_batch(const std::vector<CurvePoint>& least_step,
                                        const BatchBounds& bounds, double noise) {
  std::optional<BatchChoice> best;
  const auto look_at = [&](double batch, double seconds) {
    const double rate = batch_gain(batch, 1, noise) / seconds;
    if (!best || rate > best->rate) best = BatchChoice{batch, Seconds(seconds), rate};
  };
  for (std::size_t i = 1; i < least_step.size(); ++i) {
    const CurvePoint &from = least_step[i - 1], &to = least_step[i];
    if (to.samples <= from.samples || to.samples < bounds.least || from.samples > bounds.most)
      continue;
    const double slope = (to.seconds - from.seconds) / (to.samples - from.samples);
    const double fixed = from.seconds - slope * from.samples;
    const double first = std::max(bounds.least, from.samples);
    const double last = std::min(bounds.most, to.samples);
    double batch = slope > 0 ? std::sqrt(std::max(0.0, fixed) * noise / slope) : last;
    if (std::isnan(batch)) batch = first;  // no fixed part and infinite noise: all are equal
    batch = std::clamp(batch, first, last);
    // A jump may lie at the piece's beginning; the piece before it is then faster.
    if (batch > 0) look_at(batch, fixed + slope * batch);
  }
  return best;
}

}  // namespace motley::adapt
