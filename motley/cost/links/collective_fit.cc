#include "motley/cost/links/collective_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "motley/cost/fit/least_squares.h"

namespace motley::cost {
namespace {

constexpr std::size_t kSplits = 32, kLeastSizes = 3;
constexpr double kExact = 1e-12;  // squared error of rounding only
constexpr double kGain = 0.9;     // largest squared error of two pieces, relative to that of one

using Samples = std::vector<CollectiveSample>;

Result<void> check(const Samples& samples) {
  std::set<double> sizes;
  for (const CollectiveSample& sample : samples) {
    if (!(sample.seconds.value > 0) || !(sample.bytes >= 0)) {
      return usage_error("cost.fit",
                         fmt::format("a collective of {} bytes took {} s; times must be "
                                     "above 0 and bytes not below",
                                     sample.bytes, sample.seconds.value));
    }
    sizes.insert(sample.bytes);
  }
  if (sizes.size() < 2) {
    return usage_error("cost.fit",
                       "a collective was measured at fewer than two sizes; latency and bandwidth "
                       "cannot be told apart");
  }
  return {};
}

Result<Affine> fit_affine(const Samples& samples, std::size_t begin, std::size_t end) {
  std::vector<std::vector<double>> rows;
  std::vector<double> targets;
  for (std::size_t i = begin; i < end; ++i) {
    rows.push_back({1, samples[i].bytes});
    targets.push_back(samples[i].seconds.value);
  }
  MOTLEY_ASSIGN(const std::vector<double> x, fit_relative(rows, targets));
  return Affine{Seconds(x[0]), x[1]};
}

double squared_error(const SizeCurve& curve, const Samples& samples) {
  double sum = 0;
  for (const CollectiveSample& sample : samples) {
    sum += std::pow(curve.at(sample.bytes) / sample.seconds - 1, 2);
  }
  return sum;
}

// Returns where another size begins, with kLeastSizes on both sides; about kSplits, evenly spread.
std::vector<std::size_t> splits(const Samples& samples) {
  std::vector<std::size_t> starts;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (i == 0 || samples[i].bytes != samples[i - 1].bytes) starts.push_back(i);
  }
  std::vector<std::size_t> chosen;
  if (starts.size() < 2 * kLeastSizes) return chosen;
  const std::size_t step = std::max<std::size_t>(1, starts.size() / kSplits);
  for (std::size_t i = kLeastSizes; i + kLeastSizes <= starts.size(); i += step) {
    chosen.push_back(starts[i]);
  }
  return chosen;
}

}  // namespace

const Affine& SizeCurve::piece(double bytes) const {
  if (shape == Shape::kOne) return small;
  return (small.at(bytes) < large.at(bytes)) == (shape == Shape::kFaster) ? small : large;
}

Result<SizeCurve> fit_collective(const Samples& given) {
  MOTLEY_RETURN_IF_ERROR(check(given));
  Samples samples = given;
  std::stable_sort(
      samples.begin(), samples.end(),
      [](const CollectiveSample& a, const CollectiveSample& b) { return a.bytes < b.bytes; });
  MOTLEY_ASSIGN(const Affine one, fit_affine(samples, 0, samples.size()));
  SizeCurve best{SizeCurve::Shape::kOne, one, one};
  double least_error = kGain * (squared_error(best, samples) - kExact);
  for (const std::size_t split : splits(samples)) {
    MOTLEY_ASSIGN(const Affine small, fit_affine(samples, 0, split));
    MOTLEY_ASSIGN(const Affine large, fit_affine(samples, split, samples.size()));
    // They cross at a size > 0 only if one has less latency and the other less time per byte.
    const bool is_faster =
        small.latency < large.latency && small.seconds_per_byte > large.seconds_per_byte;
    const bool is_slower =
        small.latency > large.latency && small.seconds_per_byte < large.seconds_per_byte;
    if (!is_faster && !is_slower) continue;
    const SizeCurve curve{is_faster ? SizeCurve::Shape::kFaster : SizeCurve::Shape::kSlower, small,
                          large};
    const double error = squared_error(curve, samples);
    if (error >= least_error) continue;
    least_error = error;
    best = curve;
  }
  return best;
}

namespace {

/// The terms of a call's time, for one byte that a rank holds.
struct Shares {
  double messages = 0, crossing = 0;
};

// Derives them from the transfer, among ranks with ports of 1 byte/s at one switch.
Shares shares_of(Collective op, Algorithm algorithm, int ranks) {
  cluster::Cluster cluster;
  std::vector<DeviceId> devices;
  for (int i = 0; i < ranks; ++i) {
    cluster.nodes.push_back({.name = fmt::format("n{}", i)});
    cluster.devices.push_back({.node = NodeId(i), .name = fmt::format("n{}:0", i)});
    devices.emplace_back(i);
  }
  cluster.links.push_back({{}, BytesPerSecond(1), Seconds(0.0)});
  const Network network(cluster);
  const double held = op == Collective::kAllToAll ? ranks : 1;
  const CollectiveCall call = even_call(op, devices, held);
  const Transfer transfer = build_transfer(network, call, algorithm, {.latency = Seconds(1)});
  Shares shares;
  for (const TransferPhase& phase : transfer.phases) shares.messages += phase.delay.value;
  shares.crossing = isolated_time(transfer, network.capacities()).value - shares.messages;
  return shares;
}

}  // namespace

Result<TransportFit> fit_transport(Collective op, Algorithm algorithm, const Samples& samples) {
  MOTLEY_RETURN_IF_ERROR(check(samples));
  std::map<int, Shares> shares;
  std::vector<std::vector<double>> rows;
  std::vector<double> targets;
  for (const CollectiveSample& sample : samples) {
    if (sample.ranks < 2) {
      return usage_error(
          "cost.fit", fmt::format("a collective among {} ranks; wanted 2 or more", sample.ranks));
    }
    const auto [of, is_new] = shares.try_emplace(sample.ranks);
    if (is_new) of->second = shares_of(op, algorithm, sample.ranks);
    rows.push_back({1, of->second.messages, sample.bytes, of->second.crossing * sample.bytes});
    targets.push_back(sample.seconds.value);
  }
  if (shares.size() < 2) {
    return usage_error("cost.fit",
                       fmt::format("{} was measured among {} ranks only; links and ends cannot be "
                                   "told apart, measure another number of ranks",
                                   collective_name(op), shares.begin()->first));
  }
  MOTLEY_ASSIGN(const std::vector<double> x, fit_relative(rows, targets));
  TransportFit fit{op, algorithm, {}, {}};
  fit.transport.launch = Seconds(x[0]);
  fit.transport.latency = Seconds(x[1]);
  fit.transport.seconds_per_byte = x[2];
  if (x[3] > 0) fit.port = BytesPerSecond(1 / x[3]);
  return fit;
}

Affine TransportFit::among(int ranks) const {
  const Shares shares = shares_of(op, algorithm, ranks);
  return {transport.launch + shares.messages * transport.latency,
          transport.seconds_per_byte + (port ? shares.crossing / port->value : 0)};
}

Result<double> fit_interference(const std::vector<OverlapSample>& samples) {
  double product = 0, square = 0;
  for (const OverlapSample& sample : samples) {
    if (!(sample.alone.value > 0) || !(sample.together.value > 0) || !(sample.overlap.value >= 0)) {
      return usage_error(
          "cost.fit", fmt::format("compute of {} s alone and {} s beside {} s of communication; "
                                  "times must be above 0",
                                  sample.alone.value, sample.together.value, sample.overlap.value));
    }
    const double overlap = sample.overlap / sample.together;
    product += overlap * (1 - sample.alone / sample.together);
    square += overlap * overlap;
  }
  if (square <= 0) return usage_error("cost.fit", "compute and communication never overlapped");
  const double lost = std::max(0.0, product / square);  // f / (1 + f)
  const double most = kMostInterference / (1 + kMostInterference);
  return lost >= most ? kMostInterference : lost / (1 - lost);
}

}  // namespace motley::cost
