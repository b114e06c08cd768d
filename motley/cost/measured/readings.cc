#include "motley/cost/measured/readings.h"

#include <algorithm>
#include <cmath>

#include "motley/base/check.h"
#include "motley/base/statistics.h"

namespace motley::cost {
namespace {

constexpr double kMedianToMean = 1.2533;  // standard error of the median over that of the mean
constexpr double kLeastDeviation = 0.02;
constexpr double kOutlier = 3.5;

/// Median and robust standard deviation, the latter at least 2 % of the former.
struct Centre {
  double median, deviation;
  bool is_far(double value) const { return std::abs(value - median) > kOutlier * deviation; }
};

Centre find_centre(const std::vector<Reading>& rounds) {
  std::vector<double> values;
  for (const Reading& round : rounds) values.push_back(round.seconds);
  const double middle = median(values);
  for (double& value : values) value = std::abs(value - middle);
  return {middle, std::max(kMadToDeviation * median(values), kLeastDeviation * middle)};
}

bool have_drifted(const std::vector<Reading>& rounds) {
  if (rounds.size() < 4) return false;
  const Centre older = find_centre({rounds.begin(), rounds.end() - 2});
  const double last = rounds[rounds.size() - 1].seconds, before = rounds[rounds.size() - 2].seconds;
  return older.is_far(last) && older.is_far(before) &&
         (last > older.median) == (before > older.median);
}

double variance_of(const Reading& round) {
  const double deviation = kMedianToMean * kMadToDeviation * round.spread * round.seconds;
  return deviation * deviation / static_cast<double>(std::max<std::int64_t>(round.samples, 1));
}

struct Mean {
  double value = 0, weight = 0, square_weight = 0;
};

Mean weighted_mean(const std::vector<Reading>& rounds, double between) {
  Mean mean;
  for (const Reading& round : rounds) {
    const double weight = 1 / (variance_of(round) + between);
    mean.value += weight * round.seconds;
    mean.weight += weight;
    mean.square_weight += weight * weight;
  }
  mean.value /= mean.weight;
  return mean;
}

/// Returns tau^2. With weights w = 1 / variance it is
/// (sum w (x - mean)^2 - (n - 1)) / (sum w - sum w^2 / sum w).
double variance_between(const std::vector<Reading>& rounds, double floor) {
  const Mean mean = weighted_mean(rounds, floor);
  double scatter = 0;
  for (const Reading& round : rounds) {
    const double distance = round.seconds - mean.value;
    scatter += distance * distance / (variance_of(round) + floor);
  }
  const double excess = scatter - static_cast<double>(rounds.size() - 1);
  return std::max(0.0, excess / (mean.weight - mean.square_weight / mean.weight));
}

}  // namespace

MergedReading merge_readings(const std::vector<Reading>& rounds) {
  MOTLEY_CHECK(!rounds.empty());
  MergedReading merged;
  std::vector<Reading> kept = rounds;
  merged.has_drifted = have_drifted(rounds);
  if (merged.has_drifted) kept.erase(kept.begin(), kept.end() - 2);
  if (kept.size() > 2) {
    const Centre centre = find_centre(kept);
    std::erase_if(kept, [&](const Reading& round) { return centre.is_far(round.seconds); });
  }
  merged.rejected = static_cast<int>(rounds.size() - kept.size());
  const double middle = find_centre(kept).median;
  if (middle <= 0) return merged;
  // Keeps a round with zero spread from an infinite weight.
  const double floor = std::pow(1e-3 * middle, 2);
  const double between = kept.size() > 1 ? variance_between(kept, floor) + floor : floor;
  const Mean mean = weighted_mean(kept, between);
  merged.seconds = kept.size() == 1 ? kept[0].seconds : mean.value;
  merged.deviation = std::sqrt(1 / mean.weight) / mean.value;
  return merged;
}

}  // namespace motley::cost
