#include "motley/search/spmd/bound.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "motley/search/price/device_pools.h"
#include "motley/search/spmd/bound_terms.h"
#include "motley/search/spmd/mean_time.h"
#include "motley/search/spmd/ways_taken.h"
#include "motley/search/spmd/work_by_share.h"

namespace motley::search {
namespace {

constexpr double kMostCounted = 4096;  // sets of devices; for more, only one bound over all
constexpr double kFewSets = 40;
constexpr int kMostOfFew = 16;          // solved choices, in total, for up to kFewSets sets
constexpr int kMostOfMany = 40;         // for more sets
constexpr int kMostOfSets = 2;          // for a part with several sets
constexpr int kMostCuts = 10;           // choices of weights for a part of the space
constexpr double kCloseEnough = 0.005;  // fraction of the bound that better weights may add
constexpr double kStep = 0.6;           // of the way from the best weights to the estimated optimum
constexpr double kFirst[kBounds] = {0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1, 0, 0};

using Weights = std::vector<double>;

/// A part of the space: numbers of devices per kind, and known shares of the fullest of each.
struct SpacePart {
  std::vector<int> least, most;
  ShareRanges shares;
  double bound = 0;
  int solved = 0;          ///< choices of ways
  bool is_solved = false;  ///< better weights would gain little
  BoundWeights best;       ///< gave the bound
};

bool is_set(const SpacePart& part) { return part.least == part.most; }

int count_devices(const std::vector<int>& counts) {
  return std::accumulate(counts.begin(), counts.end(), 0);
}

class Bound {
 public:
  Bound(SpmdStudy& study, BoundedBatches batches)
      : study_(study), kinds_(study.kinds().all()), batches_(batches) {
    double sum = 0;
    for (std::size_t b = 0; b < kBounds; ++b) sum += last_[b] = holding() >> b & 1 ? kFirst[b] : 0;
    for (double& weight : last_) weight /= sum;
  }

  double find(double known) {
    double count = 1;
    for (const DeviceKind& kind : kinds_) {
      all_.push_back(static_cast<int>(kind.devices.size()));
      count *= all_.back() + 1;
    }
    if (count > kMostCounted) {
      double least = std::min(known, busy(all_, false));  // for devices that exchange
      for (std::size_t k = 0; k < kinds_.size(); ++k)
        least = std::min(least, whole(k, Estimate::kLeastAlone).total);
      return least;
    }
    add_subsets();
    // The least bound over all parts is the bound, so that part is cut or bounded better.
    const int most = count > kFewSets ? kMostOfMany : kMostOfFew;
    while (!parts_.empty()) {
      SpacePart part = pop();
      if (part.bound >= known) break;
      const bool must_end = solved_ >= most || deadline().has_passed();
      if (!must_end && !part.is_solved) {
        solve(part, known);
        push(std::move(part));
      } else if (must_end || !cut(part)) {
        return part.bound;
      }
    }
    return known;
  }

 private:
  const Deadline& deadline() const { return study_.question().deadline; }
  std::int64_t batch() const { return study_.space().global_batch; }

  /// Returns the estimate for pricing a set: one device alone exchanges nothing.
  static Estimate estimate_of(const std::vector<int>& counts) {
    return count_devices(counts) == 1 ? Estimate::kLeastAlone : Estimate::kLeast;
  }

  const WholeStep& whole(std::size_t kind, Estimate estimate) const {
    return study_.whole_step(static_cast<int>(kind), estimate);
  }

  /// Returns the weight of each kind's devices together, proportional to their speed.
  Weights weights(const std::vector<int>& counts) const {
    Weights weights;
    double sum = 0;
    for (std::size_t k = 0; k < counts.size(); ++k)
      sum += weights.emplace_back(counts[k] / whole(k, Estimate::kLeast).total);
    for (double& weight : weights) weight /= sum;
    return weights;
  }

  /// Returns the busy bound of these devices of each kind, as if all operators were split. Without
  /// launches it holds for every smaller set, too: unused devices compute nothing.
  double busy(const std::vector<int>& counts, bool has_launches = true) const {
    const Weights weight = weights(counts);
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

  /// Returns the objective; what a step has once counts per micro-batch.
  SpmdObjective objective() const {
    SpmdObjective objective;
    objective.states = plan::count_states(study_.question().lowering.recipe);
    objective.once = 1 / static_cast<double>(study_.question().micro_batches);
    return objective;
  }

  /// Returns the bounds that hold. Where a micro-batch or a step computes while another waits for
  /// an exchange, only each lane's total work bounds the step.
  unsigned holding() const {
    const SpmdQuestion& question = study_.question();
    return question.turns == 1 && !question.carries ? (1u << kBounds) - 1 : kLane | kWork;
  }

  void add(std::vector<int> least, std::vector<int> most) {
    SpacePart part{std::move(least), std::move(most), {}, 0, 0, false, {}};
    part.shares.assign(kinds_.size(), {0, 1, 0, batch()});
    part.bound = busy(part.most);
    push(std::move(part));
  }

  /// Adds each subset of used kinds, and each device alone, which has its own prices.
  void add_subsets() {
    for (std::size_t used = 1; used < std::size_t{1} << kinds_.size(); ++used) {
      std::vector<int> least(kinds_.size(), 0), most(kinds_.size(), 0);
      for (std::size_t k = 0; k < kinds_.size(); ++k)
        if (used >> k & 1) {
          least[k] = 1;
          most[k] = all_[k];
        }
      if ((used & (used - 1)) == 0) {
        add(least, least);
        for (std::size_t k = 0; k < kinds_.size(); ++k) least[k] *= 2;
        if (count_devices(most) < 2) continue;
      }
      add(std::move(least), std::move(most));
    }
  }

  struct IsLater {
    bool operator()(const SpacePart& a, const SpacePart& b) const { return a.bound > b.bound; }
  };
  void push(SpacePart part) {
    parts_.push_back(std::move(part));
    std::push_heap(parts_.begin(), parts_.end(), IsLater());
  }
  SpacePart pop() {
    std::pop_heap(parts_.begin(), parts_.end(), IsLater());
    SpacePart part = std::move(parts_.back());
    parts_.pop_back();
    return part;
  }

  struct Problem {
    Problem(const graph::Graph& graph, const SpmdSpace& space, BoundTerms found)
        : terms(std::move(found)), choices(graph, space, terms) {}
    const BoundTerms terms;
    const ChoiceProblem choices;
    std::vector<synth::Sharding> seen;  ///< the best for some weights
  };

  Problem& problem_of(const SpmdSpace& space) {
    std::unique_ptr<Problem>& problem = problems_[&space];
    if (!problem)
      problem = std::make_unique<Problem>(
          study_.graph(), space,
          find_bound_terms(study_.graph(), space, study_.whole_step(0, Estimate::kLeast).seconds));
    return *problem;
  }

  /// State shared by parts of the space with the same devices.
  struct Devices {
    std::unique_ptr<ExchangeTimes> exchanges;  // over all their sets
    const SpmdSpace* space = nullptr;
    std::unique_ptr<SpmdPrices> prices;
    std::optional<WorkByShare> works;
    std::vector<WaysTaken> seen;  // the problem's seen choices, priced for these devices
  };

  std::vector<DeviceId> first_devices(const std::vector<int>& counts) const {
    std::vector<DeviceId> devices;
    for (std::size_t k = 0; k < counts.size(); ++k)
      devices.insert(devices.end(), kinds_[k].devices.begin(),
                     kinds_[k].devices.begin() + counts[k]);
    return devices;
  }

  Devices& devices_of(const SpacePart& part) {
    std::unique_ptr<Devices>& known = devices_[{part.least, part.most}];
    if (known) return *known;
    known = std::make_unique<Devices>();
    // Even shares of the fewest devices allow the most ways: the fewest lack a part.
    const std::vector<DeviceId> devices = first_devices(part.least);
    const std::vector<double> even(devices.size(), 1.0);
    known->space = &study_.choices(even).space;
    known->exchanges = std::make_unique<ExchangeTimes>(sets_of(part));
    known->prices = std::make_unique<SpmdPrices>(
        study_.prices(*known->space, *known->exchanges, devices, even, estimate_of(part.least)));
    if (!is_set(part)) known->prices->set_most_devices(count_devices(part.most));
    known->works.emplace(*known->space, *known->prices);
    return *known;
  }

  /// Returns devices in all possible connections: from each pool, those on the fewest nodes.
  std::vector<std::vector<DeviceId>> groups_of(const std::vector<int>& counts) {
    std::vector<DeviceId> first = first_devices(counts);
    std::sort(first.begin(), first.end());
    std::set<std::vector<DeviceId>> groups = {std::move(first)};
    for (const std::vector<DeviceId>& pool : pools()) {
      std::vector<int> left = counts;
      std::vector<DeviceId> group;
      for (const DeviceId device : pool)
        if (int& of_kind = left[static_cast<std::size_t>(study_.kinds().of(device))]; of_kind > 0) {
          --of_kind;
          group.push_back(device);
        }
      std::sort(group.begin(), group.end());
      if (count_devices(left) == 0) groups.insert(std::move(group));
    }
    return {groups.begin(), groups.end()};
  }

  /// Returns pools of equally connected devices, the fullest nodes first.
  const std::vector<std::vector<DeviceId>>& pools() {
    if (pools_) return *pools_;
    std::vector<int> kinds;
    for (const DeviceId device : study_.question().devices)
      kinds.push_back(study_.kinds().of(device));
    pools_ = find_device_pools(*study_.question().cluster, study_.question().devices, kinds).pools;
    for (std::vector<DeviceId>& pool : *pools_) {
      std::map<NodeId, int> counts;
      for (const DeviceId device : pool) ++counts[study_.device(device).node];
      const auto rank = [&](DeviceId device) {
        const NodeId node = study_.device(device).node;
        return std::tuple(-counts.at(node), node, device);
      };
      std::sort(pool.begin(), pool.end(),
                [&](DeviceId a, DeviceId b) { return rank(a) < rank(b); });
    }
    return *pools_;
  }

  /// Returns the exchanges of each set of a part, for all connections of its devices.
  std::vector<ExchangeTimes*> sets_of(const SpacePart& part) {
    std::vector<ExchangeTimes*> sets;
    std::vector<int> counts = part.least;
    while (true) {
      for (const std::vector<DeviceId>& group : groups_of(counts))
        sets.push_back(&study_.exchanges(group));
      std::size_t k = 0;
      while (k < counts.size() && counts[k] == part.most[k]) {
        counts[k] = part.least[k];
        ++k;
      }
      if (k == counts.size()) return sets;
      ++counts[k];
    }
  }

  std::vector<BoundedKind> kinds_of(const Devices& devices, const SpacePart& part,
                                    const Weights& weights) const {
    std::vector<BoundedKind> kinds;
    for (const DeviceClass& each : devices.prices->classes()) {
      const auto k = static_cast<std::size_t>(each.kind);
      kinds.push_back({part.most[k], weights[k], part.shares[k]});
    }
    return kinds;
  }

  /// Runs one cutting plane. For fixed weights of kinds the bound is concave in those of bounds,
  /// and the mean of every choice of ways is an upper bound. The next weights are optimal for the
  /// seen choices, or between those and the best so far.
  void solve(SpacePart& part, double known) {
    Devices& devices = devices_of(part);
    Problem& problem = problem_of(*devices.space);
    for (std::size_t i = devices.seen.size(); i < problem.seen.size(); ++i)
      devices.seen.emplace_back(study_.graph(), *devices.space, problem.terms, *devices.prices,
                                problem.seen[i], objective());
    BoundWeights& best = part.best;
    const bool is_first = best.kinds.empty();
    if (is_first) {
      if (batches_ == BoundedBatches::kOne && std::isfinite(known))
        devices.works->narrow(part.most, known, part.shares);
      best = {weights(part.most), last_, 0};
    }
    BoundWeights next = best;
    if (!devices.seen.empty()) {
      next = best_weights(
          devices.seen, [&](const Weights& weights) { return kinds_of(devices, part, weights); },
          best.kinds, holding());
      const int most = is_set(part) ? kMostCuts : kMostOfSets;
      if (next.least <= best.least * (1 + kCloseEnough) || part.solved >= most) {
        part.is_solved = true;
        return;
      }
      if (!is_first) next = between(best, next, kStep);
    }
    ++solved_;
    ++part.solved;
    SpmdObjective objective = this->objective();
    objective.bounds = next.bounds;
    objective.kinds = kinds_of(devices, part, next.kinds);
    const TableSolution solution =
        problem.choices.solve(problem.choices.costs(*devices.prices, objective));
    part.bound = std::max(part.bound, solution.lower_bound);
    if (!std::isfinite(solution.lower_bound)) return;
    if (solution.lower_bound > best.least) {
      next.least = solution.lower_bound;
      best = std::move(next);
      last_ = best.bounds;
    }
    synth::Sharding sharding;
    problem.choices.apply(solution.choice, sharding);
    if (std::find(problem.seen.begin(), problem.seen.end(), sharding) == problem.seen.end())
      problem.seen.push_back(std::move(sharding));
    else if (part.solved > 2)
      part.is_solved = true;  // the rest is lost in small tables
  }

  /// Cuts a part in two; returns false if nothing can be cut.
  bool cut(const SpacePart& part) {
    SpacePart low = part, high = part;
    for (SpacePart* each : {&low, &high}) {
      each->is_solved = false;
      each->solved = 0;
      each->best = {};
    }
    std::size_t widest = 0;
    for (std::size_t k = 1; k < part.most.size(); ++k)
      if (part.most[k] - part.least[k] > part.most[widest] - part.least[widest]) widest = k;
    if (part.most[widest] > part.least[widest]) {
      low.most[widest] = part.least[widest] + (part.most[widest] - part.least[widest]) / 2;
      high.least[widest] = low.most[widest] + 1;
      low.bound = std::max(low.bound, busy(low.most));
    } else {
      if (batches_ == BoundedBatches::kAny || count_devices(part.most) < 2) return false;
      auto halves = devices_of(part).works->cut(part.most, part.shares);
      if (!halves) return false;
      std::tie(low.shares, high.shares) = std::move(*halves);
    }
    push(std::move(low));
    push(std::move(high));
    return true;
  }

  SpmdStudy& study_;
  const std::vector<DeviceKind>& kinds_;
  const BoundedBatches batches_;
  std::vector<int> all_;
  std::optional<std::vector<std::vector<DeviceId>>> pools_;
  std::vector<SpacePart> parts_;  // a heap, the least bound first
  std::map<const SpmdSpace*, std::unique_ptr<Problem>> problems_;
  std::map<std::pair<std::vector<int>, std::vector<int>>, std::unique_ptr<Devices>> devices_;
  Weights last_ = Weights(kBounds);  // the best weights of bounds, as a start
  int solved_ = 0;
};

}  // namespace

Seconds spmd_lower_bound(SpmdStudy& study, Seconds known, BoundedBatches batches) {
  const Result<SpmdStudy*> whole = study.whole();
  if (!whole) return Seconds(0);
  const auto times = static_cast<double>((*whole)->question().micro_batches);
  return Seconds(times * Bound(**whole, batches).find(known.value / times));
}

}  // namespace motley::search
