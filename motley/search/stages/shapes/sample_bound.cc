#include "motley/search/stages/shapes/sample_bound.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <string>

namespace motley::search {
namespace {

constexpr double kLeap = 1.07;  // ratio; costs above this many times the samples need not be exact
constexpr int kMostGenerations = 200;  // of column generation; then the known columns count
constexpr double kCollectLeap = 1.03;
constexpr double kSamplesSlack = 1e-6;  // relative; a number this close counts as possible
constexpr double kDear = 1e12;          // a prohibitive price

/// The best seconds per layer and sample over units of the same pools: [layer].
struct FastestLayers {
  StageUnit unit;
  std::vector<double> seconds;
};

/// Finds the best over units with equal devices.
std::vector<FastestLayers> fastest_layers(const StageSums& sums) {
  const StageCosts& costs = sums.costs();
  std::vector<FastestLayers> fastest;
  for (std::size_t u = 0; u < costs.units().size(); ++u) {
    const StageUnit& unit = costs.units()[u];
    const auto known = std::find_if(fastest.begin(), fastest.end(), [&](const FastestLayers& each) {
      return each.unit.parts == unit.parts;
    });
    FastestLayers& best = known != fastest.end()
                              ? *known
                              : fastest.emplace_back(FastestLayers{
                                    unit, std::vector<double>(costs.layers(), INFINITY)});
    // The rest after full micro-batches may have any size.
    for (std::int64_t batch = 1; batch <= costs.micro_batches().back(); ++batch) {
      if (!costs.knows(u, batch)) continue;
      const WorkSums& work = sums.work(u, batch);
      for (std::size_t i = 0; i < costs.layers(); ++i)
        best.seconds[i] =
            std::min(best.seconds[i], work.pass(i, i + 1) / static_cast<double>(batch));
    }
  }
  return fastest;
}

}  // namespace

bool ShapeColumns::add(const ReplicaShape& shape) {
  if (!known_.insert(shape).second) return false;
  shapes_.push_back(shape);
  return true;
}

std::vector<double> device_rates(const StageSums& sums) {
  const std::size_t layers = sums.costs().layers();
  const std::vector<FastestLayers> fastest = fastest_layers(sums);
  std::vector<double> rates;
  const auto rate_of = [&](std::size_t pool, bool is_mixed) {
    double sample = 0;  // of its best units
    for (std::size_t i = 0; i < layers; ++i) {
      double least = INFINITY;
      for (const FastestLayers& each : fastest)
        if (each.unit.is_mixed() == is_mixed && each.unit.has(pool))
          least = std::min(least, each.seconds[i] * each.unit.degree());
      sample += least;
    }
    return std::isfinite(sample) ? 1 / sample : 0;
  };
  for (std::size_t pool = 0; pool < sums.costs().pools().size(); ++pool) {
    const double alone = rate_of(pool, false);
    rates.push_back(alone > 0 ? alone : rate_of(pool, true));
  }
  double worth = 0;  // of a sample, if a device's second is worth its rate
  for (std::size_t i = 0; i < layers; ++i) {
    double least = INFINITY;
    for (const FastestLayers& each : fastest) {
      const double cost = each.unit.cost(rates);
      if (cost > 0) least = std::min(least, cost * each.seconds[i]);
    }
    worth += least;
  }
  for (double& rate : rates) rate = rate > 0 ? rate / worth : 0;
  return rates;
}

double rate_bound(const StageSums& sums, std::int64_t samples) {
  const std::vector<double> rates = device_rates(sums);
  double rate = 0;
  for (std::size_t pool = 0; pool < rates.size(); ++pool)
    rate += sums.costs().pools()[pool].devices * rates[pool];
  return rate > 0 ? static_cast<double>(samples) / rate : 0;
}

/// Adds configurations that are worth more than `prices`. Returns false if there are none.
bool SampleBound::price(double seconds, std::int64_t samples, const std::vector<double>& prices) {
  const std::vector<std::int64_t>& batches = search_->sums().costs().micro_batches();
  for (std::size_t i = 0; i < batches.size(); ++i) {
    if (price_batch(seconds, samples, batches[next_batch_], prices)) return true;
    next_batch_ = (next_batch_ + 1) % batches.size();
  }
  return false;
}

bool SampleBound::price_batch(double seconds, std::int64_t samples, std::int64_t micro,
                              const std::vector<double>& prices) {
  const StageCosts& costs = search_->sums().costs();
  if (search_->least_cost(seconds, micro, prices) > 1 + 1e-9) return false;
  double cheapest = INFINITY;  // replica, over all units
  for (const StageUnit& unit : costs.units())
    cheapest = std::min(cheapest, unit.cost(prices) + prices.back());
  bool found = false;
  std::int64_t n = std::max(micro, static_cast<std::int64_t>(std::min(cheapest, 1e15)) + 1);
  while (n <= samples) {
    ++programs_;
    const std::int64_t before = n;
    const double most = kLeap * static_cast<double>(n) + 1;
    const auto shape = search_->cheapest({seconds, n, micro, prices, prices.back(), most});
    if (!shape) {
      n = static_cast<std::int64_t>(most) + 1;
    } else if (shape->cost >= static_cast<double>(n)) {
      n = static_cast<std::int64_t>(shape->cost) + 1;
    } else {
      // In multiples of the micro-batch, below which no smaller one is formed.
      const std::int64_t does = search_->most_samples(shape->shape, seconds, samples);
      if (static_cast<double>(does) > shape->cost) {
        found = true;  // even if known: then nothing is proved
        columns_->add(shape->shape);
      }
      // Nothing more is proved: the next configuration may be a little larger.
      n = static_cast<std::int64_t>(found_leap_ * static_cast<double>(std::max(does, n))) + 1;
    }
    // One to two full micro-batches allow only one stage; more samples may do more for less.
    if (before > micro && before < 2 * micro) n = std::min(n, 2 * micro);
  }
  return found;
}

/// Sets each device's first price by its speed and adds each pool's best configurations alone; if
/// these do not suffice, those of all pools together.
void SampleBound::seed(double seconds, std::int64_t samples) {
  const StageSums& sums = search_->sums();
  const std::vector<DevicePool>& pools = sums.costs().pools();
  std::vector<double> prices = device_rates(sums);
  for (double& price : prices) price *= seconds;
  // If each pool has a range of layers, pools of a kind are combined.
  const bool is_apart = search_->limits().stretches.empty();
  std::set<std::string> kinds;
  for (std::size_t first = 0; first < pools.size(); ++first) {
    if (prices[first] <= 0 || (!is_apart && !kinds.insert(pools[first].kind).second)) continue;
    std::vector<double> alone(pools.size() + 1, kDear);
    alone.back() = 0;
    // Half of the best worth, or what makes one replica of all devices worth its price.
    for (std::size_t pool = first; pool < pools.size(); ++pool)
      if (pool == first || (!is_apart && pools[pool].kind == pools[first].kind))
        alone[pool] =
            std::min(prices[pool], static_cast<double>(samples) / pools[pool].devices) / 2;
    collect(seconds, samples, alone);
  }
  if (is_seeded_) {
    double all = 0;
    for (const DevicePool& pool : pools) all += pool.devices;
    std::vector<double> together(pools.size(), static_cast<double>(samples) / all / 2);
    together.push_back(0);
    collect(seconds, samples, together);
  }
  is_seeded_ = true;
}

void SampleBound::collect(double seconds, std::int64_t samples, const std::vector<double>& prices) {
  found_leap_ = kCollectLeap;
  for (const std::int64_t micro : search_->sums().costs().micro_batches())
    price_batch(seconds, samples, micro, prices);
  found_leap_ = kFoundLeap;
}

std::vector<double> SampleBound::limits() const {
  std::vector<double> limits;
  for (const DevicePool& pool : search_->sums().costs().pools()) limits.push_back(pool.devices);
  limits.push_back(most_replicas_);
  return limits;
}

void SampleBound::add_known(PackingLp& lp, double seconds, std::int64_t samples,
                            std::vector<std::size_t>& column_of, std::size_t& known) const {
  for (; known < columns_->shapes().size(); ++known) {
    const ReplicaShape& shape = columns_->shapes()[known];
    const std::int64_t does = search_->most_samples(shape, seconds, samples);
    if (does == 0) continue;
    std::vector<double> entries;
    for (const int devices : search_->devices(shape)) entries.push_back(devices);
    entries.push_back(1);
    lp.add(static_cast<double>(does), std::move(entries));
    column_of.push_back(known);
  }
}

bool SampleBound::is_known_possible(double seconds, std::int64_t samples) {
  if (columns_->shapes().empty()) seed(seconds, samples);
  PackingLp lp(limits());
  std::vector<std::size_t> column_of;
  std::size_t known = 0;
  add_known(lp, seconds, samples, column_of, known);
  return lp.solve() >= static_cast<double>(samples);
}

SampleAnswer SampleBound::ask(double seconds, std::int64_t samples) {
  const std::vector<DevicePool>& pools = search_->sums().costs().pools();
  const std::vector<double> limits = this->limits();
  if (columns_->shapes().empty()) seed(seconds, samples);
  PackingLp lp(limits);
  std::vector<std::size_t> column_of;  // configuration of each column
  std::size_t known = 0;
  SampleAnswer answer;
  const auto wanted = static_cast<double>(samples);
  for (int round = 0; round < kMostGenerations; ++round) {
    add_known(lp, seconds, samples, column_of, known);
    const double value = lp.solve();
    answer.prices = lp.prices();
    if (value >= wanted * (1 - kSamplesSlack)) {
      answer.is_possible = true;
      break;
    }
    // Scales prices to prove just less than `wanted`.
    std::vector<double> scaled = answer.prices;
    if (value > 0)
      for (double& each : scaled) each *= wanted * (1 - kSamplesSlack / 2) / value;
    else
      scaled.assign(pools.size() + 1, 0);
    double spare = wanted * (1 - kSamplesSlack / 2);
    for (std::size_t pool = 0; pool < limits.size(); ++pool) spare -= scaled[pool] * limits[pool];
    // An unused pool has price 0, at which everything looks good: it gets the rest.
    const double part = std::max(spare, 0.0) / static_cast<double>(pools.size());
    for (std::size_t pool = 0; pool < pools.size(); ++pool)
      if (scaled[pool] <= 0) scaled[pool] = part / limits[pool];
    if (!price(seconds, samples, scaled)) {
      answer.prices = scaled;
      return answer;
    }
  }
  answer.is_possible = true;  // not disproved
  answer.amounts.assign(columns_->shapes().size(), 0);
  const std::vector<double> amounts = lp.amounts();
  for (std::size_t i = 0; i < amounts.size(); ++i) answer.amounts[column_of[i]] = amounts[i];
  return answer;
}

}  // namespace motley::search
