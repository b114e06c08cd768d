#include "motley/adapt/noise_scale.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "motley/base/check.h"
#include "motley/base/json.h"

namespace motley::adapt {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();
constexpr double kFewestSteps = 4;

/// Corrects a normal factor to Student's (Fisher and Cornish 1960): within 1 % from 3 degrees on.
double student_factor(double normal, double degrees) {
  const double z = normal, z3 = z * z * z, z5 = z3 * z * z;
  return z + (z3 + z) / (4 * degrees) + (5 * z5 + 16 * z3 + 3 * z) / (96 * degrees * degrees) +
         (3 * z5 * z * z + 19 * z5 + 17 * z3 - 15 * z) / (384 * degrees * degrees * degrees);
}

bool is_narrower(const NoiseInterval& one, const NoiseInterval& other) {
  if (std::isinf(one.high) || std::isinf(other.high))
    return std::isinf(other.high) && (!std::isinf(one.high) || one.low >= other.low);
  return one.low * other.high >= other.low * one.high;
}

}  // namespace

NoiseScale::NoiseScale(NoiseOptions options)
    : options_(std::move(options)), averages_(options_.memories.size()) {
  MOTLEY_CHECK(options_.initial_batch > 0 && !options_.memories.empty());
}

void NoiseScale::add(const policy::NoiseSeen& seen, double passed) {
  const std::optional<NoiseMoments> moments = options_.estimate(seen);
  if (!moments) return;
  double batch = 0;
  for (const policy::NoiseSeen::Piece& piece : seen.pieces)
    batch += static_cast<double>(piece.samples);
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    Average& of = averages_[i];
    const double kept = std::exp(-(passed + batch) / options_.initial_batch / options_.memories[i]);
    const double added = -std::expm1(-batch / options_.initial_batch / options_.memories[i]);
    of.weight = kept * of.weight + added;
    of.squared_weights = kept * kept * of.squared_weights + added * added;
    const double share = added / of.weight, rest = added * (1 - share);
    const double gradient = moments->squared_gradient - of.gradient;
    const double variance = moments->variance - of.variance;
    of.gradient += share * gradient;
    of.variance += share * variance;
    of.gradient_square = kept * of.gradient_square + rest * gradient * gradient;
    of.variance_square = kept * of.variance_square + rest * variance * variance;
    of.product = kept * of.product + rest * gradient * variance;
  }
}

std::optional<NoiseInterval> NoiseScale::find_interval(std::size_t memory) const {
  const Average& of = averages_[memory];
  const double steps =
      of.squared_weights > 0 ? of.weight * of.weight / of.squared_weights : 0;  // effective number
  if (steps < kFewestSteps - 1e-9) return std::nullopt;
  // Variances of the means: the spread between steps over their number.
  const double scale = 1 / (of.weight * (steps - 1));
  const double factor = student_factor(options_.deviations, steps - 1), square = factor * factor;
  const double gg = scale * of.gradient_square, ss = scale * of.variance_square,
               gs = scale * of.product;
  NoiseInterval interval{.steps = steps, .memory = options_.memories[memory]};
  interval.estimate = of.gradient > 0 ? std::max(of.variance, 0.0) / of.gradient : kUnknown;
  // Fieller: all r with (S - r G)^2 <= factor^2 Var(S - r G).
  const double a = of.gradient * of.gradient - square * gg;
  const double b = of.gradient * of.variance - square * gs;
  const double c = of.variance * of.variance - square * ss;
  const double root = b * b - a * c;
  if (root < 0 || (a > 0 && of.gradient <= 0))
    return NoiseInterval{0, interval.estimate, kUnknown, steps,
                         interval.memory};  // nothing is excluded
  // Avoids differences of nearly equal numbers.
  const double q = b + std::copysign(std::sqrt(root), b);
  const std::array<double, 2> ends = {q != 0 ? c / q : 0, a != 0 ? q / a : kUnknown};
  if (a > 0) {
    interval.low = std::max(0.0, std::min(ends[0], ends[1]));
    interval.high = std::max(0.0, std::max(ends[0], ends[1]));
  } else {  // outside the ends: from the positive one upwards, through infinity
    interval.low = c > 0 ? std::max({0.0, ends[0], ends[1] < kUnknown ? ends[1] : 0.0}) : 0;
    interval.high = kUnknown;
  }
  interval.estimate = std::clamp(interval.estimate, interval.low, interval.high);
  return interval;
}

std::optional<NoiseInterval> NoiseScale::interval() const {
  std::optional<NoiseInterval> used;
  double low = 0, high = kUnknown;  // over all shorter ones
  for (std::size_t memory = 0; memory < averages_.size(); ++memory) {
    const std::optional<NoiseInterval> each = find_interval(memory);
    if (!each) continue;
    if (each->low > high || each->high < low) break;
    if (used && !is_narrower(*each, *used)) continue;
    used = each;
    low = std::max(low, each->low);
    high = std::min(high, each->high);
  }
  return used;
}

std::optional<double> NoiseScale::plain_ratio() const {
  const Average& longest = averages_.back();
  if (longest.weight == 0) return std::nullopt;
  return longest.gradient > 0 ? std::max(longest.variance, 1e-6) / longest.gradient : kUnknown;
}

Json NoiseScale::state() const {
  Json list = Json::array();
  for (const Average& of : averages_)
    list.push_back({of.weight, of.squared_weights, of.gradient, of.variance, of.gradient_square,
                    of.variance_square, of.product});
  return {{"averages", list}};
}

Result<void> NoiseScale::restore(const Json& state, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(state, where));
  MOTLEY_ASSIGN(const Json* list, object.member("averages"));
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  constexpr std::size_t kNumbers = 7;
  const auto fits = [](const Json& row) {
    return row.is_array() && row.size() == kNumbers &&
           std::all_of(row.begin(), row.end(), [](const Json& x) { return x.is_number(); });
  };
  if (!list->is_array() || list->size() != averages_.size() ||
      !std::all_of(list->begin(), list->end(), fits))
    return usage_error("adapt.state", where + ": key 'averages': wanted " +
                                          std::to_string(averages_.size()) + " lists of " +
                                          std::to_string(kNumbers) + " numbers");
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    const auto row = (*list)[i].get<std::vector<double>>();
    averages_[i] = {row[0], row[1], row[2], row[3], row[4], row[5], row[6]};
  }
  return {};
}

}  // namespace motley::adapt
