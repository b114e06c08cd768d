#include "motley/search/spmd/bound.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "motley/search/spmd/choice_problem.h"
#include "motley/search/spmd/spmd_search.h"

namespace motley::search {
namespace {

/// Sets that are bounded with exchanges: at least, at most, and in between as many as have so many
/// devices together; of the others the busy bound counts.
constexpr std::size_t kLeastSets = 6, kMostSets = 40, kMostDevices = 200;

constexpr double kMostCounted = 4096;   // sets of devices; with more, one bound holds for all
constexpr int kMostCuts = 8;            // choices of weights of a set
constexpr double kCloseEnough = 0.005;  // of the bound that better weights could still give
constexpr int kGrid = 40;               // weights are multiples of 1 / kGrid

/// What a choice of ways takes of busy, path and lane; or weights of them, sum 1.
using Three = std::array<double, 3>;

double mean(const Three& weights, const Three& of) {
  return weights[0] * of[0] + weights[1] * of[1] + weights[2] * of[2];
}

/// Weights at which the least mean over what was seen is largest, and that mean.
std::pair<Three, double> best_weights(const std::vector<Three>& seen) {
  std::pair<Three, double> best{{1, 0, 0}, -1};
  for (int busy = 0; busy <= kGrid; ++busy)
    for (int path = 0; busy + path <= kGrid; ++path) {
      const Three weights = {static_cast<double>(busy) / kGrid, static_cast<double>(path) / kGrid,
                             static_cast<double>(kGrid - busy - path) / kGrid};
      double least = std::numeric_limits<double>::infinity();
      for (const Three& each : seen) least = std::min(least, mean(weights, each));
      if (least > best.second) best = {weights, least};
    }
  return best;
}

/// The longest chain of operators by seconds.
void find_chain(const graph::Graph& graph, const std::vector<double>& seconds,
                SpmdObjective& objective) {
  std::vector<double> until(graph.ops.size(), 0);
  std::vector<ValueId> by(graph.ops.size());
  std::size_t last = 0;
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    graph::for_each_value(graph.ops[i].arguments, [&](ValueId value) {
      const OpId producer = graph.value(value).producer;
      if (producer.is_none() || until[producer.index()] <= until[i]) return;
      until[i] = until[producer.index()];
      by[i] = value;
    });
    until[i] += seconds[i];
    if (until[i] > until[last]) last = i;
  }
  objective.on_path.assign(graph.ops.size(), 0);
  objective.enters_by.assign(graph.ops.size(), ValueId());
  while (true) {
    objective.on_path[last] = 1;
    objective.enters_by[last] = by[last];
    if (by[last].is_none()) return;
    last = graph.value(by[last]).producer.index();
  }
}

class Bound {
 public:
  explicit Bound(const SpmdQuestion& question)
      : question_(question),
        even_(question.devices.size(), 1.0),
        space_(find_space(*question.graph, question.global_batch, even_)) {}

  Result<Seconds> find(double known) {
    MOTLEY_RETURN_IF_ERROR(find_kinds());
    double count = 1;
    for (const Kind& kind : kinds_) count *= static_cast<double>(kind.devices.size()) + 1;
    if (count > kMostCounted) return Seconds(std::min(known, busy_of_any()));
    std::vector<std::pair<double, std::vector<int>>> sets = all_sets();
    std::sort(sets.begin(), sets.end());
    const std::size_t most_sets =
        std::clamp(kMostDevices / question_.devices.size(), kLeastSets, kMostSets);
    double least = known;
    for (std::size_t s = 0; s < sets.size() && sets[s].first < least; ++s) {
      double bound = sets[s].first;
      if (s < most_sets) {
        MOTLEY_ASSIGN(const double more, with_exchanges(sets[s].second, least));
        bound = std::max(bound, more);
      }
      least = std::min(least, bound);
    }
    return Seconds(least);
  }

 private:
  /// Devices of equal times.
  struct Kind {
    std::vector<DeviceId> devices;
    double seconds = 0;           // of all operators, whole
    std::vector<double> of_op{};  // by operator, whole
    std::vector<double> launches{};
  };

  Result<void> find_kinds() {
    std::map<std::pair<const cost::WorkTimes*, double>, std::size_t> known;
    for (const DeviceId id : question_.devices) {
      const auto about = question_.costs->by_work.find(question_.cluster->device(id).name);
      if (about != question_.costs->by_work.end()) {
        const auto same = known.find({about->second.times.get(), about->second.speed});
        if (same != known.end()) {
          kinds_[same->second].devices.push_back(id);
          continue;
        }
      }
      MOTLEY_ASSIGN(SpmdPrices prices,
                    SpmdPrices::make(*question_.graph, space_, *question_.cluster, *question_.costs,
                                     {id}, {1.0}));
      const DeviceClass& device = prices.classes()[0];
      known[{device.times.get(), device.speed}] = kinds_.size();
      Kind& kind = kinds_.emplace_back(Kind{{id}});
      for (std::size_t i = 0; i < space_.ways.size(); ++i) {
        const OpId op(static_cast<std::int64_t>(i));
        const bool is_needed = space_.is_needed[i] != 0;
        kind.of_op.push_back(is_needed ? prices.compute(op, space_.ways[i][0])[0] : 0);
        kind.launches.push_back(is_needed ? prices.launch(op, 0) : 0);
        kind.seconds += kind.of_op.back();
      }
    }
    return {};
  }

  /// The busy bound of a set with so many devices of each kind: as if all operators were split.
  double busy(const std::vector<int>& counts) const {
    double speed = 0;
    for (std::size_t k = 0; k < counts.size(); ++k) speed += counts[k] / kinds_[k].seconds;
    double sum = 0;  // weights in proportion to speed
    for (std::size_t i = 0; i < space_.ways.size(); ++i) {
      double least = std::numeric_limits<double>::infinity(), launches = 0, paid = 0;
      for (std::size_t k = 0; k < counts.size(); ++k) {
        if (counts[k] == 0) continue;
        const double whole = kinds_[k].of_op[i], launch = std::min(kinds_[k].launches[i], whole);
        const double weight = 1 / kinds_[k].seconds / speed;
        launches += counts[k] * weight * launch;
        paid += whole > 0 ? counts[k] * launch / whole : counts[k];
        least = std::min(least, weight * whole);
      }
      sum += launches + least * std::max(0.0, 1 - paid);
    }
    return sum;
  }

  /// The busy bound that holds for every set: devices that are not used compute nothing, so
  /// launches do not count.
  double busy_of_any() const {
    double speed = 0, sum = 0;
    for (const Kind& kind : kinds_)
      speed += static_cast<double>(kind.devices.size()) / kind.seconds;
    for (std::size_t i = 0; i < space_.ways.size(); ++i) {
      double least = std::numeric_limits<double>::infinity();
      for (const Kind& kind : kinds_) least = std::min(least, kind.of_op[i] / kind.seconds / speed);
      sum += least;
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

  Result<double> with_exchanges(const std::vector<int>& counts, double known) {
    std::vector<DeviceId> devices;
    for (std::size_t k = 0; k < counts.size(); ++k)
      devices.insert(devices.end(), kinds_[k].devices.begin(),
                     kinds_[k].devices.begin() + counts[k]);
    MOTLEY_ASSIGN(SpmdPrices prices,
                  SpmdPrices::make(*question_.graph, space_, *question_.cluster, *question_.costs,
                                   devices, std::vector<double>(devices.size(), 1.0)));
    SpmdObjective objective;
    objective.is_bound = true;
    double speed = 0;
    for (const DeviceClass& device : prices.classes()) speed += device.count / alone(device);
    for (const DeviceClass& device : prices.classes())
      objective.class_weights.push_back(device.count / alone(device) / speed);
    find_chain(*question_.graph, kinds_[0].of_op, objective);
    const auto problem_of = [&](const Three& weights) {
      objective.compute = weights[0];
      objective.path = weights[1];
      objective.exchange = objective.gradient_exchange = weights[2];
      return ChoiceProblem(*question_.graph, space_, prices, objective);
    };
    const ChoiceProblem units[] = {problem_of({1, 0, 0}), problem_of({0, 1, 0}),
                                   problem_of({0, 0, 1})};
    // Cutting planes: the bound is concave in the weights, and every choice of ways bounds it from
    // above by its own mean; the next weights are the best ones for the choices seen.
    double most = 0;
    std::vector<Three> seen;
    Three weights = {0.5, 0.3, 0.2};
    for (int cut = 0; cut < kMostCuts; ++cut) {
      const TableSolution solution = solve_tables(problem_of(weights).tables());
      most = std::max(most, solution.lower_bound);
      if (most >= known) break;
      Three& took = seen.emplace_back();
      for (std::size_t i = 0; i < took.size(); ++i)
        took[i] = cost_of(units[i].tables(), solution.choice);
      double possible = 0;
      std::tie(weights, possible) = best_weights(seen);
      if (possible <= most * (1 + kCloseEnough)) break;
    }
    return most;
  }

  double alone(const DeviceClass& device) const {
    for (const Kind& kind : kinds_) {
      const auto found =
          question_.costs->by_work.find(question_.cluster->device(kind.devices[0]).name);
      if (found->second.times == device.times && found->second.speed == device.speed)
        return kind.seconds;
    }
    return 1;
  }

  const SpmdQuestion& question_;
  const std::vector<double> even_;
  const SpmdSpace space_;
  std::vector<Kind> kinds_;
};

}  // namespace

Result<Seconds> spmd_lower_bound(const SpmdQuestion& question, Seconds known) {
  return Bound(question).find(known.value);
}

}  // namespace motley::search
