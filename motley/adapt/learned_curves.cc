#include "motley/adapt/learned_curves.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "motley/base/check.h"
#include "motley/base/json.h"
#include "motley/base/statistics.h"
#include "motley/cost/fit/gaussian_fit.h"
#include "motley/policy/json_fields.h"

namespace motley::adapt {
namespace {

/// The most steps averaged in a point, points kept, and updates kept.
constexpr std::size_t kWindow = 32, kPoints = 10, kUpdates = 9;
constexpr double kMostWeight = 400;
/// Readings that an assumed spread counts as; readings after which a measured one is forgotten.
constexpr double kAssumedReadings = 6, kMostReadings = 200;
/// Residuals are clipped to this many spreads; farther readings are left out of means.
constexpr double kTrim = 2.5;

// Prior of an unknown device, relative to its time at the last samples: the part that grows with
// the samples, and the deviations of the line, of smooth bends and of single numbers of samples.
constexpr double kGrowing = 0.8, kGrowingDeviation = 0.3, kLevelDeviation = 0.5;
constexpr double kBend = 0.05, kSingle = 0.005;
/// Uncertainty of the level of points from before a change, and of each point beside it.
constexpr double kOldLevel = 0.3, kOldPoint = 0.02;
/// Further uncertainty at samples that were never measured.
constexpr double kJump = 0.1;
/// Keeps identical points apart.
constexpr double kRounding = 1e-4;
/// A point's own drift per hundred steps, and the most.
constexpr double kDrift = 0.01, kMostDrift = 0.05;

double square(double x) { return x * x; }

/// Returns a similarity that falls from 1 with the distance of two sample counts (Matern, 3/2).
double likeness(double a, double b) {
  const double distance = std::sqrt(3.0) * std::abs(std::log(a / b));
  return (1 + distance) * std::exp(-distance);
}

bool is_time(double seconds) { return std::isfinite(seconds) && seconds > 0; }

/// Lists sample counts up to `most` in steps of a quarter, and `others`.
std::vector<double> sample_grid(std::int64_t most, const std::vector<std::int64_t>& others) {
  std::vector<double> grid;
  for (double x = 1; x < static_cast<double>(most); x = std::max(x + 1, std::floor(x * 1.25)))
    grid.push_back(x);
  grid.push_back(static_cast<double>(most));
  for (const std::int64_t other : others) grid.push_back(static_cast<double>(other));
  std::sort(grid.begin(), grid.end());
  grid.erase(std::unique(grid.begin(), grid.end()), grid.end());
  if (grid.size() == 1) grid.push_back(grid.front() + 1);
  return grid;
}

std::vector<double> middles_of(const std::vector<std::vector<double>>& rows) {
  std::vector<double> middles;
  for (std::size_t k = 0; !rows.empty() && k < rows.back().size(); ++k) {
    std::vector<double> column;
    for (const std::vector<double>& row : rows)
      if (row.size() == rows.back().size()) column.push_back(row[k]);
    middles.push_back(median(std::move(column)));
  }
  return middles;
}

}  // namespace

/// The prior of end(samples), and the estimate from all points.
struct LearnedCurves::Fit {
  const std::optional<CurvePrior>& prior;
  double log_level, scale, origin;  // seconds at `origin` samples

  double mean(double samples) const {
    if (prior) return std::exp(log_level) * prior->curves.end.at(samples);
    return scale * (1 + kGrowing * (samples / origin - 1));
  }
  double covariance(double a, double b) const {
    const double both = mean(a) * mean(b), single = a == b ? square(kSingle) : 0;
    if (prior) {
      const double trust = square(prior->trust);
      return both * (trust + trust / 4 * std::log(a / origin) * std::log(b / origin) +
                     std::max(trust / 9, square(0.02)) * likeness(a, b) + single);
    }
    return both * (square(kLevelDeviation) + square(kBend) * likeness(a, b) + single) +
           square(scale * kGrowingDeviation) * (a / origin - 1) * (b / origin - 1);
  }
};

LearnedCurves::LearnedCurves(std::optional<CurvePrior> prior) : prior_(std::move(prior)) {}

double LearnedCurves::spread() const {
  return std::sqrt((kAssumedReadings * square(assumed_spread_) + squares_) /
                   (kAssumedReadings + degrees_));
}

std::optional<LearnedCurves::Change> LearnedCurves::observe(const policy::DeviceStep& seen,
                                                            std::int64_t step) {
  const bool fits =
      is_time(seen.end) && seen.samples > 0 &&
      std::all_of(seen.ready.begin(), seen.ready.end(), [](double x) { return x >= 0; }) &&
      std::all_of(seen.update.begin(), seen.update.end(), [](double x) { return x >= 0; });
  if (!fits) return std::nullopt;
  Reading reading{std::log(seen.end), {}};
  for (const double ready : seen.ready) reading.ready.push_back(ready / seen.end);
  double residual = 0, deviation = 0;
  if (is_known()) {
    const auto samples = static_cast<double>(seen.samples);
    const Estimated before = estimate(std::max(seen.samples, largest_seen_));
    const double expected = before.curves.end.at(samples);
    residual = reading.log_end - std::log(expected);
    deviation = before.deviation.at(samples) / expected;
    // A curve may jump where it was never measured; that is no change of speed.
    const bool is_new = seen.samples != window_samples_ &&
                        std::none_of(points_.begin(), points_.end(), [&](const Point& point) {
                          return point.samples == seen.samples;
                        });
    if (is_new) deviation = std::hypot(deviation, kJump);
  }
  reading.is_first = seen.samples != window_samples_;
  if (reading.is_first) {
    residual -= assumed_first_.mean();
    deviation = std::hypot(deviation, assumed_first_.deviation());
  }
  const bool was_seen = is_seen();
  if (reading.is_first) close_window();
  window_samples_ = seen.samples;
  largest_seen_ = std::max(largest_seen_, seen.samples);
  if (was_seen) count_spread(residual, deviation);
  if (window_.size() == 1 && window_.front().is_first) {
    first_steps_.observe(window_.front().log_end - reading.log_end, spread());
    assumed_first_ = first_steps_;
  }
  window_.push_back(std::move(reading));
  if (window_.size() > kWindow) window_.erase(window_.begin());
  updates_.push_back(seen.update);
  if (updates_.size() > kUpdates) updates_.erase(updates_.begin());
  last_step_ = step;
  if (!was_seen) return std::nullopt;
  return find_change(residual, deviation, step);
}

/// Counts a reading's distance from its expectation, which has the deviation `deviation`.
void LearnedCurves::count_spread(double residual, double deviation) {
  const double own = square(spread()), all = own + square(deviation), counts = own / all;
  const double most = kTrim * std::sqrt(all);
  squares_ += square(counts * std::clamp(residual, -most, most));
  degrees_ += counts;
  if (degrees_ <= kMostReadings) return;
  squares_ *= kMostReadings / degrees_;
  degrees_ = kMostReadings;
}

std::optional<LearnedCurves::Change> LearnedCurves::find_change(double residual, double deviation,
                                                                std::int64_t step) {
  // A spread from few readings may be too small.
  const double noise = square(spread()) * (1 + 4 / (1 + degrees_));
  const std::size_t shows = watch_.observe(residual / std::sqrt(noise + square(deviation)));
  if (shows == 0) return std::nullopt;
  const std::size_t suspects = std::min(shows, window_.size());
  // The state without the suspects, and the suspects.
  const Point now = summary(window_.size() - suspects, window_.size());
  std::vector<Reading> recent(window_.end() - static_cast<std::ptrdiff_t>(suspects), window_.end());
  window_.resize(window_.size() - suspects);
  if (!is_known()) {
    window_ = std::move(recent);
    return std::nullopt;
  }
  const double before =
      std::log(estimate(largest_seen_).curves.end.at(static_cast<double>(window_samples_)));
  close_window();
  for (Point& point : points_) {
    point.log_end += now.log_end - before;
    ++point.age;
  }
  log_level_ += now.log_end - before;
  window_ = std::move(recent);
  return Change{std::exp(now.log_end - before), step + 1 - static_cast<std::int64_t>(suspects)};
}

/// Averages readings [first, last) of the window, without those far from their median.
LearnedCurves::Point LearnedCurves::summary(std::size_t first, std::size_t last) const {
  std::vector<double> ends;
  std::vector<std::vector<double>> ready;
  for (std::size_t i = first; i < last; ++i) {
    if (!window_[i].is_first) ends.push_back(window_[i].log_end);
    ready.push_back(window_[i].ready);
  }
  Point point{.samples = window_samples_, .ready = middles_of(ready), .step = last_step_};
  const auto count = [&](double log_end, double weight) {
    point.log_end += weight * log_end;
    point.weight += weight;
  };
  if (!ends.empty()) {
    const double middle = median(ends), far = kTrim * spread();
    for (const double end : ends)
      if (std::abs(end - middle) <= far) count(end, 1);
    if (point.weight == 0) count(middle, 1);
  }
  if (window_[first].is_first)
    count(window_[first].log_end - assumed_first_.mean(), first_weight());
  point.log_end /= point.weight;
  return point;
}

double LearnedCurves::first_weight() const {
  const double own = square(spread());
  return own / (own + square(assumed_first_.deviation()));
}

/// Turns the window into a point, merged with an earlier one at the same samples.
void LearnedCurves::close_window() {
  if (window_.empty()) return;
  Point point = summary(0, window_.size());
  window_.clear();
  const auto same = std::find_if(points_.begin(), points_.end(), [&](const Point& other) {
    return other.samples == point.samples;
  });
  if (same != points_.end()) {
    if (same->age == 0) {
      const double both = point.weight + same->weight;
      point.log_end = (point.log_end * point.weight + same->log_end * same->weight) / both;
      point.weight = std::min(both, kMostWeight);
    }
    points_.erase(same);
  }
  points_.push_back(std::move(point));
  if (points_.size() > kPoints) points_.erase(points_.begin());
}

std::vector<LearnedCurves::Point> LearnedCurves::all_points() const {
  std::vector<Point> points = points_;
  if (!window_.empty()) points.push_back(summary(0, window_.size()));
  return points;
}

std::size_t LearnedCurves::exchanges() const {
  if (!window_.empty()) return window_.back().ready.size();
  if (!points_.empty()) return points_.back().ready.size();
  return prior_->curves.ready.size();
}

/// Returns, for each exchange, the share of end(samples) at which it is ready: linear between
/// points, constant beyond them; with a prior, the difference from it.
std::vector<double> LearnedCurves::ready_at(const std::vector<Point>& points,
                                            double samples) const {
  const auto believed = [&](std::size_t k, double at) {
    if (!prior_ || prior_->curves.ready.size() != exchanges()) return 0.0;
    return prior_->curves.ready[k].at(at) / prior_->curves.end.at(at);
  };
  std::vector<double> shares;
  for (std::size_t k = 0; k < exchanges(); ++k) {
    cost::Curve off;
    for (const Point& point : points) {
      if (point.ready.size() != exchanges()) continue;
      const auto at = static_cast<double>(point.samples);
      off.points.emplace_back(at, point.ready[k] - believed(k, at));
    }
    std::stable_sort(off.points.begin(), off.points.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    // Of equal samples the later ones count.
    for (std::size_t i = off.points.size(); i-- > 1;)
      if (off.points[i].first == off.points[i - 1].first)
        off.points.erase(off.points.begin() + static_cast<std::ptrdiff_t>(i) - 1);
    double share = believed(k, samples);
    if (!off.points.empty()) share += off.at(std::min(samples, off.points.back().first));
    shares.push_back(std::clamp(share, 0.0, 1.0));
  }
  return shares;
}

LearnedCurves::Estimated LearnedCurves::estimate(std::int64_t most) const {
  MOTLEY_CHECK(is_known());
  const std::vector<Point> points = all_points();
  Fit fit{prior_, log_level_, 1, static_cast<double>(std::max<std::int64_t>(most, 1))};
  std::vector<std::int64_t> seen;
  for (const Point& point : points) seen.push_back(point.samples);
  if (prior_)
    for (const auto& [samples, seconds] : prior_->curves.end.points)
      if (samples >= 1 && samples <= static_cast<double>(most))
        seen.push_back(static_cast<std::int64_t>(samples));
  if (!points.empty()) {
    fit.origin = static_cast<double>(points.back().samples);
    fit.scale = std::exp(points.back().log_end);
  }
  const std::size_t n = points.size();
  std::vector<double> covariances(n * n), off(n), at(n);
  for (std::size_t i = 0; i < n; ++i) {
    at[i] = static_cast<double>(points[i].samples);
    off[i] = std::exp(points[i].log_end) - fit.mean(at[i]);
  }
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      covariances[i * n + j] = fit.covariance(at[i], at[j]);
      if (points[i].age == points[j].age && points[i].age > 0)
        covariances[i * n + j] += square(kOldLevel) * fit.mean(at[i]) * fit.mean(at[j]);
      if (i != j) continue;
      covariances[i * n + j] += square(kRounding * fit.mean(at[i]));
      const double steps = std::max(0.0, static_cast<double>(last_step_ - points[i].step)) / 100;
      covariances[i * n + j] +=
          std::exp(2 * points[i].log_end) *
          (square(spread()) / points[i].weight + square(kOldPoint * points[i].age) +
           std::min(square(kDrift) * steps, square(kMostDrift)));
    }
  const cost::GaussianFit measured(covariances, off);
  Estimated estimated;
  const std::vector<double> grid = sample_grid(std::max<std::int64_t>(most, 1), seen);
  std::vector<double> ends, weights;
  for (const double samples : grid) {
    std::vector<double> with(n);
    for (std::size_t i = 0; i < n; ++i) with[i] = fit.covariance(samples, at[i]);
    const cost::Estimate found = measured.at(with, fit.covariance(samples, samples));
    ends.push_back(std::max(fit.mean(samples) + found.value, 0.02 * fit.mean(fit.origin)));
    estimated.deviation.points.emplace_back(samples, found.deviation);
    weights.push_back(1 / (square(found.deviation) + 1e-12 * square(fit.mean(samples))));
  }
  make_nondecreasing(ends, weights);
  estimated.curves.ready.resize(exchanges());
  for (std::size_t i = 0; i < grid.size(); ++i) {
    estimated.curves.end.points.emplace_back(grid[i], ends[i]);
    const std::vector<double> ready = ready_at(points, grid[i]);
    for (std::size_t k = 0; k < ready.size(); ++k)
      estimated.curves.ready[k].points.emplace_back(grid[i], ready[k] * ends[i]);
  }
  estimated.curves.update = updates_.empty() ? prior_->curves.update : middles_of(updates_);
  estimated.curves.update.resize(exchanges());
  return estimated;
}

std::optional<double> LearnedCurves::over_prior() const {
  if (!prior_ || window_.empty()) return std::nullopt;
  const Point now = summary(0, window_.size());
  return std::exp(now.log_end) / prior_->curves.end.at(static_cast<double>(now.samples));
}

}  // namespace motley::adapt
