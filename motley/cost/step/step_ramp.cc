#include "motley/cost/step/step_ramp.h"

#include <algorithm>
#include <limits>

#include "motley/base/check.h"
#include "motley/cost/step/closed_form.h"

namespace motley::cost {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();
/// A line is below another only by more than rounding.
constexpr double kBelow = 1 - 1e-12;

}  // namespace

bool share_points(const StepCurves& curves) {
  const auto& points = curves.end.points;
  return std::all_of(curves.ready.begin(), curves.ready.end(), [&](const Curve& ready) {
    return std::equal(ready.points.begin(), ready.points.end(), points.begin(), points.end(),
                      [](const auto& a, const auto& b) { return a.first == b.first; });
  });
}

StepRamp::StepRamp(const StepCurves& curves, const std::vector<double>& tails, Limits limits)
    : curves_(curves), tails_(tails), most_(limits.most), update_(total_update(curves)) {
  MOTLEY_CHECK(tails.size() == curves.ready.size());
  if (limits.shares_points) pieces_.resize(curves.end.points.size());
}

double StepRamp::begin_of(std::size_t piece) const {
  double& seconds = pieces_[piece].seconds;
  if (seconds >= 0) return seconds;
  const std::size_t point = piece == 0 ? 0 : piece - 1;
  seconds = curves_.end.points[point].second + update_;
  for (std::size_t k = 0; k < tails_.size(); ++k)
    seconds = std::max(seconds, curves_.ready[k].points[point].second + tails_[k]);
  return seconds;
}

const StepRamp::Piece& StepRamp::with_lines(std::size_t piece) const {
  Piece& found = pieces_[piece];
  if (found.last > 0) return found;
  const std::size_t left = piece == 0 ? 0 : piece - 1;
  found.first = lines_.size();
  const auto add = [&](const Curve& curve, double tail) {
    const double begin = curve.points[left].second;
    lines_.push_back({begin, curve.points[piece].second - begin, tail});
  };
  add(curves_.end, update_);
  for (std::size_t k = 0; k < tails_.size(); ++k) add(curves_.ready[k], tails_[k]);
  double end_share = 1;
  if (piece > 0 && piece + 1 == pieces_.size())
    end_share = std::max(1.0, (most_ - samples_of(left)) / (samples_of(piece) - samples_of(left)));
  keep_highest(found.first, end_share);
  found.last = lines_.size();
  return found;
}

/// Keeps the lines from `first` on that are the highest somewhere.
void StepRamp::keep_highest(std::size_t first, double end_share) const {
  const auto begin = lines_.begin() + static_cast<std::ptrdiff_t>(first);
  const auto highest = [&](double share) {
    return *std::max_element(begin, lines_.end(), [&](const Line& a, const Line& b) {
      return a.at(share) < b.at(share);
    });
  };
  const Line at_begin = highest(0), at_end = highest(end_share);
  const auto is_below = [&](const Line& line, const Line& other) {
    return line.at(0) < kBelow * other.at(0) && line.at(end_share) < kBelow * other.at(end_share);
  };
  lines_.erase(std::remove_if(begin, lines_.end(),
                              [&](const Line& line) {
                                return is_below(line, at_begin) || is_below(line, at_end);
                              }),
               lines_.end());
}

double StepRamp::at(double samples) const {
  if (pieces_.empty()) return step_seconds(curves_, tails_, samples);
  std::size_t i = 0;
  if (samples > samples_of(0) && pieces_.size() > 1)
    for (i = 1; i + 1 < pieces_.size() && samples >= samples_of(i);) ++i;
  const Piece& piece = with_lines(i);
  double share = 0;
  if (i > 0) share = (samples - samples_of(i - 1)) / (samples_of(i) - samples_of(i - 1));
  double seconds = -kUnbounded;
  for (std::size_t line = piece.first; line < piece.last; ++line)
    seconds = std::max(seconds, lines_[line].at(share));
  return seconds;
}

double StepRamp::largest_samples(double seconds) const {
  if (pieces_.empty()) return cost::largest_samples(curves_, tails_, seconds);
  if (begin_of(0) > seconds) return -kUnbounded;
  std::size_t i = 0, beyond = pieces_.size();  // the last piece that begins in time
  while (i + 1 < beyond) {
    const std::size_t middle = i + (beyond - i) / 2;
    (begin_of(middle) <= seconds ? i : beyond) = middle;
  }
  if (i == 0) return kUnbounded;
  const Piece& piece = with_lines(i);
  double share = kUnbounded;
  for (std::size_t line = piece.first; line < piece.last; ++line) {
    const auto& [begin, rise, tail] = lines_[line];
    if (rise > 0) share = std::min(share, (seconds - tail - begin) / rise);
  }
  return samples_of(i - 1) + (samples_of(i) - samples_of(i - 1)) * share;
}

}  // namespace motley::cost
