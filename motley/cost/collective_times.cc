#include "motley/cost/collective_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "motley/program/parts.h"

namespace motley::cost {
namespace {

std::string fit_key(std::string_view op, std::string_view backend, std::string_view route) {
  return fmt::format("{}|{}|{}", op, backend, route);
}

using Samples = std::vector<CollectiveSample>;

bool has_two_sizes(const Samples& samples) {
  return std::any_of(samples.begin(), samples.end(), [&](const CollectiveSample& sample) {
    return sample.bytes != samples.front().bytes;
  });
}

/// Scales a curve measured among `from` ranks to `to` ranks, as for a ring.
SizeCurve around_ring(SizeCurve curve, int from, int to) {
  const double messages = static_cast<double>(to - 1) / (from - 1);
  for (Affine* piece : {&curve.small, &curve.large}) {
    piece->latency = messages * piece->latency;
    piece->seconds_per_byte *= messages * from / to;
  }
  return curve;
}

/// Returns whether the measured numbers of ranks have gaps, which a transport fills.
bool has_gaps(const std::map<int, SizeCurve>& curves) {
  return !curves.empty() &&
         std::prev(curves.end())->first - curves.begin()->first >= static_cast<int>(curves.size());
}

/// Returns the fit of the backend's algorithm that explains the measurements best, if any.
std::optional<TransportFit> find_transport(std::string_view op, std::string_view backend,
                                           const Samples& samples) {
  std::optional<TransportFit> best;
  double least = std::numeric_limits<double>::infinity();
  for (const Algorithm algorithm :
       backend_algorithms(backend == "nccl" ? Backend::kNccl : Backend::kGloo, collective_of(op),
                          program::split_collective_name(op).method)) {
    if (algorithm == Algorithm::kHierarchical) continue;  // not for ranks at one switch
    const auto fit = fit_transport(collective_of(op), algorithm, samples);
    if (!fit) continue;
    std::map<int, Affine> lines;
    double error = 0;
    for (const CollectiveSample& sample : samples) {
      const auto [line, is_new] = lines.try_emplace(sample.ranks);
      if (is_new) line->second = fit->among(sample.ranks);
      error += std::pow(line->second.at(sample.bytes) / sample.seconds - 1, 2);
    }
    if (error < least) {
      least = error;
      best = *fit;
    }
  }
  return best;
}

}  // namespace

Collective collective_of(std::string_view name) {
  const std::string_view op = program::split_collective_name(name).op;
  if (op == program::kAllGather) return Collective::kAllGather;
  if (op == program::kReduceScatter) return Collective::kReduceScatter;
  if (op == program::kAllToAll) return Collective::kAllToAll;
  return op == program::kSend ? Collective::kSend : Collective::kAllReduce;
}

Result<CollectiveTimes> CollectiveTimes::build(const ProfileStore& store) {
  MOTLEY_ASSIGN(const std::vector<CollectiveEntry> entries, store.collectives());
  struct Measured {
    std::string op, backend;
    std::map<int, Samples> by_ranks;
  };
  std::map<std::string, Measured> measured;
  for (const CollectiveEntry& entry : entries) {
    if (entry.median.value <= 0) continue;  // only in a damaged file
    Measured& of = measured[fit_key(entry.op, entry.backend, entry.route)];
    of.op = entry.op;
    of.backend = entry.backend;
    of.by_ranks[entry.ranks].push_back(
        {entry.ranks, static_cast<double>(entry.bytes.value), entry.median});
  }
  CollectiveTimes times;
  for (const auto& [key, of] : measured) {
    Fits fits;
    Samples all;
    for (const auto& [ranks, samples] : of.by_ranks) {
      if (!has_two_sizes(samples)) continue;  // cannot separate latency from rate
      MOTLEY_ASSIGN(fits.curves[ranks], fit_collective(samples));
      all.insert(all.end(), samples.begin(), samples.end());
    }
    if (has_gaps(fits.curves)) fits.transport = find_transport(of.op, of.backend, all);
    times.fits_.emplace(key, std::move(fits));
  }
  return times;
}

void CollectiveTimes::reach(int ranks) {
  for (auto& [key, fits] : fits_) {
    if (fits.curves.empty() || fits.curves.begin()->first < 2) continue;
    const auto first = *fits.curves.begin(), last = *fits.curves.rbegin();
    if (last.first < ranks) fits.curves[ranks] = around_ring(last.second, last.first, ranks);
    if (first.first > 2) fits.curves[2] = around_ring(first.second, first.first, 2);
  }
}

std::optional<CollectiveCurve> CollectiveTimes::fastest(std::string_view op, int ranks,
                                                        std::string_view backend,
                                                        Bytes bytes) const {
  const auto size = static_cast<double>(bytes.value);
  const std::string prefix = fit_key(op, backend, "");
  std::optional<CollectiveCurve> best;
  for (auto at = fits_.lower_bound(prefix); at != fits_.end() && at->first.starts_with(prefix);
       ++at) {
    const auto curve = find_measured(op, at->first.substr(prefix.size()), ranks, backend);
    if (curve && (!best || curve->at(size) < best->at(size))) best = *curve;
  }
  return best;
}

void CollectiveTimes::assume(std::string_view op, const std::string& route, int ranks,
                             std::string_view backend, Affine line) {
  fits_[fit_key(op, backend, route)].curves[ranks] = {.small = line, .large = line};
}

Result<Seconds> CollectiveTimes::at(std::string_view op, const std::string& route, int ranks,
                                    Bytes bytes, std::string_view backend) const {
  MOTLEY_ASSIGN(const CollectiveCurve found, curve(op, route, ranks, backend));
  return found.at(static_cast<double>(bytes.value));
}

Result<CollectiveCurve> CollectiveTimes::curve(std::string_view op, const std::string& route,
                                               int ranks, std::string_view backend) const {
  if (ranks <= 1) return CollectiveCurve{};
  const auto own = find_measured(op, route, ranks, backend);
  const auto [native, method] = program::split_collective_name(op);
  // Only the native method was measured: no method is much worse, and the bytes that methods move
  // (the caller's) decide which one is best for uneven parts.
  if (!own && method != ExchangeMethod::kNative) return curve(native, route, ranks, backend);
  // An all-reduce of two moves as many bytes each way as a send does one way.
  if (!own && op == program::kSend) {
    auto sum = find_measured(program::kAllReduce, route, ranks, backend);
    return sum ? sum : own;
  }
  const bool is_half =
      op == program::kAllGather || op == program::kReduceScatter || op == program::kAllToAll;
  if (own || !is_half) return own;
  auto whole = find_measured(program::kAllReduce, route, ranks, backend);
  if (!whole) return own;
  whole->scale = 0.5;
  return whole;
}

Result<CollectiveCurve> CollectiveTimes::find_measured(std::string_view op,
                                                       const std::string& route, int ranks,
                                                       std::string_view backend) const {
  static const Fits none;
  const auto found = fits_.find(fit_key(op, backend, route));
  const Fits& fits = found == fits_.end() ? none : found->second;
  const auto right = fits.curves.lower_bound(ranks);
  if (right == fits.curves.end() || (right == fits.curves.begin() && right->first != ranks)) {
    std::vector<std::string> measured;
    for (const auto& [count, fit] : fits.curves) measured.push_back(fmt::format("{}", count));
    return usage_error(
        "cost.missing-profile",
        fmt::format(
            "no measurement of {} over {} by route {} among {} ranks (measured at two sizes "
            "or more: {}); run `motley profile` with this cluster",
            op, backend, route, ranks,
            measured.empty() ? "none" : fmt::format("{} ranks", fmt::join(measured, ", "))));
  }
  if (right->first == ranks) return CollectiveCurve{right->second, right->second};
  // Only in between: latency beyond the largest group is unknown.
  const auto left = std::prev(right);
  CollectiveCurve curve{left->second, right->second,
                        static_cast<double>(ranks - left->first) / (right->first - left->first)};
  if (const auto& fit = fits.transport)
    curve.transports = {fit->among(left->first), fit->among(ranks), fit->among(right->first)};
  return curve;
}

}  // namespace motley::cost
