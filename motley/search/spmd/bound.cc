#include "motley/search/spmd/bound.h"

#include <algorithm>
#include <map>
#include <utility>

#include "motley/search/spmd/choice_problem.h"
#include "motley/search/spmd/spmd_search.h"

namespace motley::search {
namespace {

constexpr std::size_t kMostSets = 6;  // bounded with exchanges; of the others the busy bound counts

/// Weights of busy, path and lane.
struct Mean {
  double busy, path, lane;
};
constexpr Mean kMeans[] = {
    {0, 1, 0}, {0.2, 0.8, 0}, {0.1, 0.7, 0.2}, {0.4, 0.4, 0.2}, {0.5, 0, 0.5}};

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
    std::vector<std::pair<double, std::vector<int>>> sets = all_sets();
    std::sort(sets.begin(), sets.end());
    double least = known;
    for (std::size_t s = 0; s < sets.size() && sets[s].first < least; ++s) {
      double bound = sets[s].first;
      if (s < kMostSets) {
        MOTLEY_ASSIGN(const double more, with_exchanges(sets[s].second));
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
  };

  Result<void> find_kinds() {
    std::map<std::pair<const cost::WorkTimes*, double>, std::size_t> known;
    for (const DeviceId id : question_.devices) {
      MOTLEY_ASSIGN(SpmdPrices prices,
                    SpmdPrices::make(*question_.graph, space_, *question_.cluster, *question_.costs,
                                     {id}, {1.0}));
      const DeviceClass& device = prices.classes()[0];
      const auto [at, is_new] =
          known.try_emplace({device.times.get(), device.speed}, kinds_.size());
      if (!is_new) {
        kinds_[at->second].devices.push_back(id);
        continue;
      }
      Kind& kind = kinds_.emplace_back(Kind{{id}});
      for (std::size_t i = 0; i < space_.ways.size(); ++i) {
        kind.of_op.push_back(
            space_.is_needed[i]
                ? prices.compute(OpId(static_cast<std::int64_t>(i)), space_.ways[i][0])[0]
                : 0);
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
      double least = 0;
      for (std::size_t k = 0; k < counts.size(); ++k)
        if (const double each = kinds_[k].of_op[i] / kinds_[k].seconds / speed;
            counts[k] > 0 && (least == 0 || each < least))
          least = each;
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

  Result<double> with_exchanges(const std::vector<int>& counts) {
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
    double most = 0;
    for (const Mean& mean : kMeans) {
      objective.compute = mean.busy;
      objective.path = mean.path;
      objective.exchange = objective.gradient_exchange = mean.lane;
      const ChoiceProblem problem(*question_.graph, space_, prices, objective);
      most = std::max(most, solve_tables(problem.tables()).lower_bound);
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
