#include "motley/search/stages/shapes/shape_times.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace motley::search {

bool ShapeTimes::knows_rest(std::int64_t samples) const {
  const std::int64_t rest = samples % micro_batch_;
  return rest == 0 || std::all_of(stages_.begin(), stages_.end(), [&](const Stage& stage) {
           return sums_->costs().knows(stage.unit, rest);
         });
}

double ShapeTimes::seconds(std::int64_t samples) const {
  if (!knows_rest(samples)) return std::numeric_limits<double>::infinity();
  const std::int64_t full = samples / micro_batch_, rest = samples % micro_batch_;
  double time = 0;
  for (const Stage& stage : stages_) {
    const double last = rest > 0 ? sums_->work(stage.unit, rest).pass(stage.first, stage.end) : 0;
    time = std::max(time, static_cast<double>(full) * stage.pass + last + stage.once);
  }
  return time;
}

std::int64_t ShapeTimes::most_samples(double seconds_given, std::int64_t most) const {
  auto full = static_cast<double>(most / micro_batch_ + 1);
  for (const Stage& stage : stages_)
    full = std::min(full, std::floor((seconds_given - stage.once) / stage.pass));
  if (!(full >= 0)) full = 0;
  std::int64_t fits = std::min(most, static_cast<std::int64_t>(full) * micro_batch_);
  if (!knows_rest(fits)) fits -= fits % micro_batch_;
  while (fits > 0 && seconds(fits) > seconds_given)  // rounding
    fits = std::max<std::int64_t>(0, fits - micro_batch_);
  // Times do not fall with the samples.
  for (std::int64_t above = std::min(most, fits + micro_batch_) + 1; above - fits > 1;) {
    const std::int64_t middle = fits + (above - fits) / 2;
    (seconds(middle) <= seconds_given ? fits : above) = middle;
  }
  return fits;
}

}  // namespace motley::search
