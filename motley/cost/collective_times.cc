#include "motley/cost/collective_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "motley/program/parts.h"

namespace motley::cost {
namespace {

std::string fit_key(std::string_view op, std::string_view backend, std::string_view route) {
  return fmt::format("{}|{}|{}", op, backend, route);
}

struct Sample {
  double bytes, seconds;
};

// Least squares of ((latency + slope * bytes) - seconds) / seconds with both coefficients >= 0.
// With weights w = 1 / seconds^2 the normal equations are
//   latency * sum(w)       + slope * sum(w bytes)   = sum(w seconds)
//   latency * sum(w bytes) + slope * sum(w bytes^2) = sum(w bytes seconds).
// The sum is convex, so where a coefficient comes out negative the best has it 0. Both cannot, as
// all data are positive.
std::pair<double, double> fit_line(const std::vector<Sample>& samples) {
  double w = 0, wb = 0, wbb = 0, wt = 0, wbt = 0;
  for (const auto& [bytes, seconds] : samples) {
    const double weight = 1 / (seconds * seconds);
    w += weight;
    wb += weight * bytes;
    wbb += weight * bytes * bytes;
    wt += weight * seconds;
    wbt += weight * bytes * seconds;
  }
  const double determinant = w * wbb - wb * wb;
  const double latency = (wt * wbb - wbt * wb) / determinant;
  const double slope = (w * wbt - wb * wt) / determinant;
  // The minimum under a bound lies on it: the other coefficient is fitted again alone.
  if (latency < 0) return {0.0, wbt / wbb};
  if (slope < 0) return {wt / w, 0.0};
  return {latency, slope};
}

bool has_two_sizes(const std::vector<Sample>& samples) {
  return std::any_of(samples.begin(), samples.end(),
                     [&](const Sample& sample) { return sample.bytes != samples.front().bytes; });
}

double between(double left, double right, double share) { return left + share * (right - left); }

}  // namespace

Result<CollectiveTimes> CollectiveTimes::build(const ProfileStore& store) {
  MOTLEY_ASSIGN(const std::vector<CollectiveEntry> entries, store.collectives());
  std::map<std::string, std::map<int, std::vector<Sample>>> samples;
  for (const CollectiveEntry& entry : entries) {
    if (entry.median.value <= 0) continue;  // only in a damaged file
    samples[fit_key(entry.op, entry.backend, entry.route)][entry.ranks].push_back(
        {static_cast<double>(entry.bytes.value), entry.median.value});
  }
  CollectiveTimes times;
  for (const auto& [key, by_ranks] : samples) {
    for (const auto& [ranks, measured] : by_ranks) {
      // One size cannot tell latency from rate: the determinant is 0.
      if (!has_two_sizes(measured)) continue;
      const auto [latency, slope] = fit_line(measured);
      times.fits_[key][ranks] = Line{latency, slope};
    }
  }
  return times;
}

Result<Seconds> CollectiveTimes::at(std::string_view op, const std::string& route, int ranks,
                                    Bytes bytes, std::string_view backend) const {
  MOTLEY_ASSIGN(const Line found, line(op, route, ranks, backend));
  return Seconds(found.latency + found.seconds_per_byte * static_cast<double>(bytes.value));
}

Result<CollectiveTimes::Line> CollectiveTimes::line(std::string_view op, const std::string& route,
                                                    int ranks, std::string_view backend) const {
  if (ranks <= 1) return Line{};
  const auto own = find_measured(op, route, ranks, backend);
  const auto [native, method] = program::split_collective_name(op);
  // What was measured as native only: no method is much worse, and which one is best for uneven
  // parts is decided by what they move (the caller's bytes).
  if (!own && method != ExchangeMethod::kNative) return line(native, route, ranks, backend);
  const bool is_half =
      op == program::kAllGather || op == program::kReduceScatter || op == program::kAllToAll;
  if (own || !is_half) return own;
  auto whole = find_measured(program::kAllReduce, route, ranks, backend);
  if (!whole) return own;
  whole->seconds_per_byte /= 2;
  return whole;
}

Result<CollectiveTimes::Line> CollectiveTimes::find_measured(std::string_view op,
                                                             const std::string& route, int ranks,
                                                             std::string_view backend) const {
  const auto found = fits_.find(fit_key(op, backend, route));
  const std::map<int, Line> none;
  const std::map<int, Line>& fits = found == fits_.end() ? none : found->second;
  const auto right = fits.lower_bound(ranks);
  if (right == fits.end() || (right == fits.begin() && right->first != ranks)) {
    std::vector<std::string> measured;
    for (const auto& [count, fit] : fits) measured.push_back(fmt::format("{}", count));
    return usage_error(
        "cost.missing-profile",
        fmt::format(
            "no measurement of {} over {} by route {} among {} ranks (measured at two sizes "
            "or more: {}); run `motley profile` with this cluster",
            op, backend, route, ranks,
            measured.empty() ? "none" : fmt::format("{} ranks", fmt::join(measured, ", "))));
  }
  // In between only: how latency grows beyond the largest group is not a line.
  const auto left = right->first == ranks ? right : std::prev(right);
  const double share =
      left == right ? 0.0 : static_cast<double>(ranks - left->first) / (right->first - left->first);
  return Line{between(left->second.latency, right->second.latency, share),
              between(left->second.seconds_per_byte, right->second.seconds_per_byte, share)};
}

}  // namespace motley::cost
