#include "motley/adapt/batch_option.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <utility>

namespace motley::adapt {
namespace {

constexpr double kSampleRounding = 1e-9;  // of samples

tl::unexpected<Error> curve_fault(const BatchOption& option, const std::string& found) {
  return usage_error("adapt.curve", "devices '" + option.name + "': " + found);
}

/// Returns the curve of readiness, with a corner where the overlap ends.
std::vector<CurvePoint> ready_points(const DeviceCurve& curve, const ExchangeTimes& exchange) {
  const double corner = exchange.share > 0 ? exchange.hidden.value / exchange.share : 0;
  std::vector<CurvePoint> points;
  for (std::size_t i = 0; i < curve.points.size(); ++i) {
    const CurvePoint& to = curve.points[i];
    if (i > 0) {
      const CurvePoint& from = curve.points[i - 1];
      if (from.seconds < corner && corner < to.seconds) {
        const double part = (corner - from.seconds) / (to.seconds - from.seconds);
        points.push_back({from.samples + part * (to.samples - from.samples), corner});
      }
    }
    points.push_back({to.samples, ready_seconds(exchange, to.seconds)});
  }
  return points;
}

/// At `seconds` the sum of the inverses jumps by `jump` samples and changes its slope.
struct Bend {
  double seconds, jump, slope;
  bool operator<(const Bend& other) const { return seconds < other.seconds; }
};

void add_bends(const std::vector<CurvePoint>& points, std::vector<Bend>& bends) {
  bends.push_back({points[0].seconds, points[0].samples, 0});
  for (std::size_t i = 1; i < points.size(); ++i) {
    const double samples = points[i].samples - points[i - 1].samples;
    const double seconds = points[i].seconds - points[i - 1].seconds;
    if (samples <= 0) continue;
    const double slope = samples / seconds;
    if (std::isinf(slope)) {
      bends.push_back({points[i].seconds, samples, 0});
    } else {
      bends.push_back({points[i - 1].seconds, 0, slope});
      bends.push_back({points[i].seconds, 0, -slope});
    }
  }
}

/// Rounds sums of whole samples to whole numbers: a jump may begin there.
double whole_again(double samples) {
  const double whole = std::round(samples);
  return std::abs(samples - whole) < 1e-9 * std::max(1.0, whole) ? whole : samples;
}

std::int64_t units_in(const BatchOption& option, double samples) {
  return static_cast<std::int64_t>(std::floor(samples / static_cast<double>(option.unit)));
}

/// Returns the most samples with which the device is ready by `seconds`.
double samples_by(const std::vector<CurvePoint>& points, double seconds) {
  if (points[0].seconds > seconds) return 0;
  const auto after =
      std::upper_bound(points.begin(), points.end(), seconds,
                       [](double limit, const CurvePoint& point) { return limit < point.seconds; });
  const CurvePoint& from = *(after - 1);
  if (after == points.end()) return from.samples;
  return from.samples + (after->samples - from.samples) * (seconds - from.seconds) /
                            (after->seconds - from.seconds);
}

}  // namespace

Result<void> verify_option(const BatchOption& option) {
  const ExchangeTimes& exchange = option.exchange;
  const auto is_time = [](double x) { return std::isfinite(x) && x >= 0; };
  if (!is_time(exchange.hidden.value) || !is_time(exchange.tail.value) ||
      !is_time(exchange.share) || exchange.share > 1)
    return curve_fault(option, "wanted exchange times of at least 0 and a share from 0 to 1");
  if (option.devices.empty()) return curve_fault(option, "no devices");
  if (option.unit < 1) return curve_fault(option, "wanted a unit of at least 1 sample");
  for (const DeviceCurve& curve : option.devices) {
    CurvePoint before;
    for (const CurvePoint& point : curve.points) {
      if (!is_time(point.samples) || !is_time(point.seconds) || point.samples < before.samples ||
          point.seconds < before.seconds)
        return curve_fault(option, "curve of '" + curve.device +
                                       "': wanted samples and seconds of at least 0, rising");
      before = point;
    }
    if (before.samples <= 0)
      return curve_fault(option, "curve of '" + curve.device + "': no point with samples");
  }
  return {};
}

double work_seconds(const DeviceCurve& curve, double samples) {
  const std::vector<CurvePoint>& points = curve.points;
  if (samples <= points[0].samples || points.size() == 1) return points[0].seconds;
  // Takes the first point of a jump: there the next micro-batch has not begun.
  auto to = std::lower_bound(
      points.begin(), points.end(), samples,
      [](const CurvePoint& point, double wanted) { return point.samples < wanted; });
  if (to == points.end()) {
    --to;
    while (to != points.begin() + 1 && (to - 1)->samples == to->samples) --to;
  }
  const CurvePoint& from = *(to - 1);
  if (to->samples == from.samples) return to->seconds;
  return from.seconds +
         (to->seconds - from.seconds) * (samples - from.samples) / (to->samples - from.samples);
}

double ready_seconds(const ExchangeTimes& exchange, double work) {
  return work + std::max(0.0, exchange.hidden.value - exchange.share * work);
}

Seconds step_seconds(const BatchOption& option, const std::vector<std::int64_t>& samples) {
  double last = 0;
  for (std::size_t i = 0; i < option.devices.size(); ++i)
    if (samples[i] > 0)
      last = std::max(
          last, ready_seconds(option.exchange,
                              work_seconds(option.devices[i], static_cast<double>(samples[i]))));
  return Seconds(last) + option.exchange.tail;
}

std::vector<CurvePoint> least_step(const BatchOption& option) {
  std::vector<Bend> bends;
  for (const DeviceCurve& curve : option.devices)
    add_bends(ready_points(curve, option.exchange), bends);
  std::sort(bends.begin(), bends.end());
  const double tail = option.exchange.tail.value;
  std::vector<CurvePoint> points;
  double samples = 0, slope = 0, at = bends[0].seconds;
  points.push_back({0, at + tail});
  int rising = 0;  // segments in progress; the slope itself does not return to exactly 0
  for (std::size_t i = 0; i < bends.size();) {
    if (bends[i].seconds > at) {
      if (rising > 0) samples += slope * (bends[i].seconds - at);
      at = bends[i].seconds;
      points.push_back({whole_again(samples), at + tail});
    }
    double jump = 0;
    for (; i < bends.size() && bends[i].seconds == at; ++i) {
      jump += bends[i].jump;
      slope += bends[i].slope;
      rising += (bends[i].slope > 0) - (bends[i].slope < 0);
    }
    if (rising == 0) slope = 0;
    if (jump > 0) points.push_back({whole_again(samples += jump), at + tail});
  }
  return points;
}

std::int64_t batch_below(const BatchOption& option, double samples) {
  return units_in(option, samples) * option.unit;
}

std::int64_t batch_above(const BatchOption& option, double samples) {
  return static_cast<std::int64_t>(std::ceil(samples / static_cast<double>(option.unit))) *
         option.unit;
}

std::vector<std::int64_t> split_batch(const BatchOption& option, std::int64_t batch) {
  const std::size_t n = option.devices.size();
  const std::int64_t unit = option.unit;
  if (batch % unit != 0) return {};
  const std::vector<CurvePoint> least = least_step(option);
  // Caps in whole units. The optimum for `batch` in units is no earlier than in fractions.
  std::vector<std::int64_t> caps(n), samples(n);
  std::int64_t room = 0, given = 0;
  for (std::size_t i = 0; i < n; ++i)
    room += caps[i] =
        batch_below(option, option.devices[i].points.back().samples + kSampleRounding);
  if (batch > room || batch < 0) return {};
  const DeviceCurve all{"", least};
  const double until = work_seconds(all, static_cast<double>(batch)) - option.exchange.tail.value;
  for (std::size_t i = 0; i < n; ++i) {
    const double most =
        samples_by(ready_points(option.devices[i], option.exchange), until * (1 - 1e-12));
    samples[i] = std::min(caps[i], batch_below(option, most));
    given += samples[i];
  }
  const auto next = [&](std::size_t i) {
    return ready_seconds(option.exchange,
                         work_seconds(option.devices[i], static_cast<double>(samples[i] + unit)));
  };
  // Flat parts of curves may have given too many; takes them from the latest.
  for (std::size_t i = n; i-- > 0 && given > batch;) {
    const std::int64_t less = std::min(samples[i], given - batch);
    samples[i] -= less;
    given -= less;
  }
  using Turn = std::pair<double, std::size_t>;
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns;
  for (std::size_t i = 0; i < n; ++i)
    if (samples[i] < caps[i]) turns.push({next(i), i});
  for (; given < batch; given += unit) {
    const std::size_t i = turns.top().second;
    turns.pop();
    samples[i] += unit;
    if (samples[i] < caps[i]) turns.push({next(i), i});
  }
  return samples;
}

std::int64_t samples_within(const BatchOption& option, Seconds step) {
  const double until = (step - option.exchange.tail).value * (1 + 1e-12);
  std::int64_t samples = 0;
  for (const DeviceCurve& curve : option.devices)
    samples += batch_below(
        option, samples_by(ready_points(curve, option.exchange), until) + kSampleRounding);
  return samples;
}

}  // namespace motley::adapt
