#include "motley/search/spmd/bound.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <tuple>
#include <utility>

#include "motley/search/spmd/bound_terms.h"
#include "motley/search/spmd/mean_time.h"

namespace motley::search {
namespace {

/// Sets that are bounded with exchanges: at least, at most, and in between as many as have so many
/// devices together; of the others the busy bound counts.
constexpr std::size_t kLeastSets = 6, kMostSets = 40, kMostDevices = 200;

constexpr double kMostCounted = 4096;   // sets of devices; with more, one bound holds for all
constexpr int kMostCuts = 12;           // choices of weights of a set
constexpr double kCloseEnough = 0.005;  // of the bound that better weights could still give
constexpr int kGrid = 14;               // weights are multiples of 1 / kGrid

/// What a choice of ways takes by each of the bounds; or weights of them, sum 1.
using ByBound = std::array<double, kBounds>;

double mean(const ByBound& weights, const ByBound& of) {
  return std::inner_product(weights.begin(), weights.end(), of.begin(), 0.0);
}

/// Calls with all weights on the grid.
template <typename Do>
void for_each_weights(const Do& act) {
  ByBound weights{};
  const auto choose = [&](const auto& self, std::size_t b, int left) -> void {
    if (b + 1 == kBounds) {
      weights[b] = static_cast<double>(left) / kGrid;
      return act(weights);
    }
    for (int part = 0; part <= left; ++part) {
      weights[b] = static_cast<double>(part) / kGrid;
      self(self, b + 1, left - part);
    }
  };
  choose(choose, 0, kGrid);
}

/// Weights at which the least mean over what was seen is largest, and that mean.
std::pair<ByBound, double> best_weights(const std::vector<ByBound>& seen) {
  std::pair<ByBound, double> best{{1}, -1};
  for_each_weights([&](const ByBound& weights) {
    double least = std::numeric_limits<double>::infinity();
    for (const ByBound& each : seen) least = std::min(least, mean(weights, each));
    if (least > best.second) best = {weights, least};
  });
  return best;
}

class Bound {
 public:
  explicit Bound(SpmdStudy& study) : study_(study), kinds_(study.kinds().all()) {}

  double find(double known) {
    double count = 1;
    std::vector<int> all;
    for (const DeviceKind& kind : kinds_) {
      all.push_back(static_cast<int>(kind.devices.size()));
      count *= all.back() + 1;
    }
    if (count > kMostCounted) {
      double least = std::min(known, busy(all, false));  // of those that exchange
      for (std::size_t k = 0; k < kinds_.size(); ++k)
        least = std::min(least, whole(k, Estimate::kLeastAlone).total);
      return least;
    }
    std::vector<std::pair<double, std::vector<int>>> sets = all_sets();
    std::sort(sets.begin(), sets.end());
    const std::size_t most_sets =
        std::clamp(kMostDevices / study_.question().devices.size(), kLeastSets, kMostSets);
    double least = known;
    for (std::size_t s = 0; s < sets.size() && sets[s].first < least; ++s) {
      double bound = sets[s].first;
      if (s < most_sets && !deadline().has_passed())
        bound = std::max(bound, with_exchanges(sets[s].second, least));
      least = std::min(least, bound);
    }
    return least;
  }

 private:
  const Deadline& deadline() const { return study_.question().deadline; }

  /// By which a set's programs are priced: one device alone exchanges nothing.
  static Estimate estimate_of(const std::vector<int>& counts) {
    return std::accumulate(counts.begin(), counts.end(), 0) == 1 ? Estimate::kLeastAlone
                                                                 : Estimate::kLeast;
  }

  const WholeStep& whole(std::size_t kind, Estimate estimate) const {
    return study_.whole_step(static_cast<int>(kind), estimate);
  }

  /// By kind what its devices weigh together: in proportion to speed.
  std::vector<double> weights(const std::vector<int>& counts) const {
    std::vector<double> weights;
    double sum = 0;
    for (std::size_t k = 0; k < counts.size(); ++k)
      sum += weights.emplace_back(counts[k] / whole(k, Estimate::kLeast).total);
    for (double& weight : weights) weight /= sum;
    return weights;
  }

  /// The busy bound of a set with so many devices of each kind, as if all operators were split.
  /// Without launches it holds for every smaller set, too: devices that are not used compute
  /// nothing.
  double busy(const std::vector<int>& counts, bool has_launches = true) const {
    const std::vector<double> weight = weights(counts);
    const Estimate estimate = estimate_of(counts);
    double sum = 0;
    for (std::size_t i = 0; i < study_.graph().ops.size(); ++i) {
      MeanTime mean;
      for (std::size_t k = 0; k < counts.size(); ++k)
        if (counts[k] > 0)
          mean.add(
              counts[k], weight[k],
              {whole(k, estimate).seconds[i], 0, has_launches ? whole(k, estimate).launch[i] : 0});
      sum += mean.split();
    }
    return sum;
  }

  std::vector<std::pair<double, std::vector<int>>> all_sets() const {
    std::vector<std::pair<double, std::vector<int>>> sets;
    std::vector<int> counts(kinds_.size(), 0);
    while (true) {
      std::size_t k = 0;
      while (k < counts.size() && counts[k] == static_cast<int>(kinds_[k].devices.size()))
        counts[k++] = 0;
      if (k == counts.size()) return sets;
      ++counts[k];
      sets.emplace_back(busy(counts), counts);
    }
  }

  const ChoiceProblem& problem_of(const SpmdSpace& space) {
    std::unique_ptr<const ChoiceProblem>& problem = problems_[&space];
    if (!problem)
      problem = std::make_unique<const ChoiceProblem>(
          study_.graph(), space,
          find_bound_terms(study_.graph(), space, study_.whole_step(0, Estimate::kLeast).seconds));
    return *problem;
  }

  double with_exchanges(const std::vector<int>& counts, double known) {
    std::vector<DeviceId> devices;
    for (std::size_t k = 0; k < counts.size(); ++k)
      devices.insert(devices.end(), kinds_[k].devices.begin(),
                     kinds_[k].devices.begin() + counts[k]);
    // The most ways are there at even shares: no others leave fewer devices without a part.
    const std::vector<double> even(devices.size(), 1.0);
    const SpmdSpace& space = study_.choices(even).space;
    const ChoiceProblem& problem = problem_of(space);
    SpmdPrices prices = study_.prices(space, devices, even, estimate_of(counts));
    const std::vector<double> weight = weights(counts);
    const auto costs_of = [&](const ByBound& of) {
      SpmdObjective objective;
      objective.bounds.assign(of.begin(), of.end());
      for (const DeviceClass& each : prices.classes())
        objective.class_weights.push_back(weight[static_cast<std::size_t>(each.kind)]);
      return problem.costs(prices, objective);
    };
    std::vector<TableCosts> units;
    for (std::size_t b = 0; b < kBounds; ++b) {
      ByBound unit{};
      unit[b] = 1;
      units.push_back(costs_of(unit));
    }
    // Cutting planes: the bound is concave in the weights, and every choice of ways bounds it from
    // above by its own mean; the next weights are the best ones for the choices seen.
    double most = 0;
    std::vector<ByBound> seen;
    ByBound mix = last_mix_;
    for (int cut = 0; cut < kMostCuts; ++cut) {
      const TableSolution solution = problem.solve(costs_of(mix));
      if (solution.lower_bound > most) {
        most = solution.lower_bound;
        last_mix_ = mix;
      }
      if (most >= known || deadline().has_passed()) break;
      ByBound took{};
      for (std::size_t b = 0; b < kBounds; ++b)
        took[b] = cost_of(problem.layout(), units[b], solution.choice);
      // The weights would be the same again: what is left is what small tables leave open.
      if (std::find(seen.begin(), seen.end(), took) != seen.end()) break;
      seen.push_back(took);
      double possible = 0;
      std::tie(mix, possible) = best_weights(seen);
      if (possible <= most * (1 + kCloseEnough)) break;
    }
    return most;
  }

  SpmdStudy& study_;
  const std::vector<DeviceKind>& kinds_;
  std::map<const SpmdSpace*, std::unique_ptr<const ChoiceProblem>> problems_;
  ByBound last_mix_ = {0.3, 0.2, 0.1, 0.2, 0.2};  // the best of the set before, as a start
};

}  // namespace

Seconds spmd_lower_bound(SpmdStudy& study, Seconds known) {
  return Seconds(Bound(study).find(known.value));
}

}  // namespace motley::search
