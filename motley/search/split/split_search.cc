#include "motley/search/split/split_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <queue>
#include <utility>

#include "motley/base/check.h"

namespace motley::search {
namespace {

using Setting = SplitEvaluator::Setting;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Slack that covers the rounding of an inverse; far below a nanosecond of a step.
constexpr double kRounding = 1e-12;

/// Devices of one type that may take part.
struct Crew {
  const DeviceType* type = nullptr;
  std::vector<DeviceId> members;  // in cluster order
  std::vector<DeviceId> spread;   // the same, one of each node after the other
};
using Team = std::vector<Crew>;

/// What each device of a crew can do within some time.
struct Load {
  std::size_t crew = 0;
  std::int64_t samples = 0;
};

std::int64_t size_of(const Crew& crew) { return static_cast<std::int64_t>(crew.members.size()); }

std::int64_t size_of(const Team& team) {
  std::int64_t size = 0;
  for (const Crew& crew : team) size += size_of(crew);
  return size;
}

/// Minimises the largest f_i over at most k devices of a team, for one W.
class Filling {
 public:
  struct Goal {
    std::int64_t batch = 0, least = 1;
    std::int64_t devices = 0;  ///< at most
  };
  struct Solution {
    double seconds = 0;       ///< largest f of the loads
    std::vector<Load> loads;  ///< of at most `devices` devices, batch or more together
  };

  Filling(const Team& team, const std::vector<double>& tails, Goal goal)
      : team_(team), tails_(tails), goal_(goal) {}

  /// Least number of devices that can do the batch within `seconds`; more than there are when none
  /// can. Never too many; rounding may make it too few.
  std::int64_t devices_needed(double seconds) const {
    std::vector<Load> loads;
    for (std::size_t i = 0; i < team_.size(); ++i) {
      loads.push_back({i, clip(inverse(i, seconds + kRounding * std::abs(seconds)) + 1e-9, i)});
    }
    sort(loads);
    std::int64_t left = goal_.batch, devices = 0;
    for (const Load& load : loads) {
      if (load.samples == 0) break;
      const std::int64_t needed = (left + load.samples - 1) / load.samples;
      if (needed <= size_of(team_[load.crew])) return devices + needed;
      left -= load.samples * size_of(team_[load.crew]);
      devices += size_of(team_[load.crew]);
    }
    return std::numeric_limits<std::int64_t>::max();
  }

  /// The best loads if their largest f is below `limit`; f below `floor` counts as `floor`.
  std::optional<Solution> solve(double limit, double floor) const {
    auto best = fill(std::nextafter(limit, 0.0));
    if (!best) return std::nullopt;
    double low = std::max(floor, least_value());
    while (low < best->seconds) {
      double middle = low + (best->seconds - low) / 2;
      if (middle >= best->seconds) middle = low;
      if (auto better = fill(middle)) {
        best = std::move(better);
      } else {
        low = next_value(middle);
      }
    }
    return best;
  }

  double value(std::size_t crew, std::int64_t samples) const {
    return step_seconds(*team_[crew].type->shared, tails_, static_cast<double>(samples));
  }

 private:
  double inverse(std::size_t crew, double seconds) const {
    return largest_samples(*team_[crew].type->shared, tails_, seconds);
  }

  /// Whole samples that the crew's devices may have; 0 if fewer than the least.
  std::int64_t clip(double samples, std::size_t crew) const {
    const std::int64_t cap = team_[crew].type->shared_cap;
    if (!(samples >= static_cast<double>(goal_.least)) || cap < goal_.least) return 0;
    return samples >= static_cast<double>(cap) ? cap : static_cast<std::int64_t>(samples);
  }

  /// Largest whole b with f(b) <= seconds in the arithmetic of f itself.
  std::int64_t samples_within(std::size_t crew, double seconds) const {
    const std::int64_t cap = team_[crew].type->shared_cap;
    std::int64_t samples = std::max(clip(inverse(crew, seconds), crew), goal_.least - 1);
    while (samples < cap && value(crew, samples + 1) <= seconds) ++samples;
    while (samples >= goal_.least && value(crew, samples) > seconds) --samples;
    return samples < goal_.least ? 0 : samples;
  }

  double least_value() const {
    double least = kInfinity;
    for (std::size_t i = 0; i < team_.size(); ++i) {
      if (team_[i].type->shared_cap >= goal_.least) least = std::min(least, value(i, goal_.least));
    }
    return least;
  }

  /// Least f above `seconds` at which some device could take more.
  double next_value(double seconds) const {
    double next = kInfinity;
    for (std::size_t i = 0; i < team_.size(); ++i) {
      const std::int64_t samples = std::max(samples_within(i, seconds), goal_.least - 1);
      if (samples < team_[i].type->shared_cap) next = std::min(next, value(i, samples + 1));
    }
    return next;
  }

  static void sort(std::vector<Load>& loads) {
    std::sort(loads.begin(), loads.end(), [](const Load& a, const Load& b) {
      return a.samples != b.samples ? a.samples > b.samples : a.crew < b.crew;
    });
  }

  /// The largest loads within `seconds`, if they hold the batch.
  std::optional<Solution> fill(double seconds) const {
    Solution solution;
    for (std::size_t i = 0; i < team_.size(); ++i) {
      solution.loads.push_back({i, samples_within(i, seconds)});
    }
    sort(solution.loads);
    std::int64_t left = goal_.batch, devices = goal_.devices;
    std::size_t used = 0;
    while (used < solution.loads.size() && devices > 0 && solution.loads[used].samples > 0) {
      const Load& load = solution.loads[used++];
      const std::int64_t taken = std::min(devices, size_of(team_[load.crew]));
      left -= load.samples * taken;
      devices -= taken;
      solution.seconds = std::max(solution.seconds, value(load.crew, load.samples));
    }
    if (left > 0) return std::nullopt;
    solution.loads.resize(used);
    return solution;
  }

  const Team& team_;
  const std::vector<double>& tails_;
  Goal goal_;
};

/// A device with its samples while surplus ones are taken back.
struct Hand {
  double seconds = 0;
  DeviceId device;
  std::size_t crew = 0;
  std::int64_t samples = 0;
  bool operator<(const Hand& other) const {  // the latest first, of equals the highest id
    return seconds != other.seconds ? seconds < other.seconds : device < other.device;
  }
};

/// Names the devices and takes back what exceeds the batch, always from the latest device.
BatchSplit make_split(const Team& team, const Filling& filling, const Filling::Goal& goal,
                      const Filling::Solution& solution,
                      std::vector<DeviceId> Crew::*order = &Crew::members) {
  std::priority_queue<Hand> hands;
  std::vector<Hand> done;
  std::int64_t surplus = -goal.batch;
  std::int64_t devices = goal.devices;
  for (const Load& load : solution.loads) {
    for (const DeviceId device : team[load.crew].*order) {
      if (devices-- <= 0) break;
      hands.push({filling.value(load.crew, load.samples), device, load.crew, load.samples});
      surplus += load.samples;
    }
  }
  while (surplus > 0) {
    MOTLEY_CHECK(!hands.empty());
    Hand hand = hands.top();
    hands.pop();
    if (hand.samples == goal.least) {
      done.push_back(hand);
      continue;
    }
    --surplus;
    --hand.samples;
    hand.seconds = filling.value(hand.crew, hand.samples);
    hands.push(hand);
  }
  for (; !hands.empty(); hands.pop()) done.push_back(hands.top());
  std::sort(done.begin(), done.end(),
            [](const Hand& a, const Hand& b) { return a.device < b.device; });
  BatchSplit split;
  for (const Hand& hand : done) {
    split.devices.push_back(hand.device);
    split.samples.push_back(hand.samples);
  }
  return split;
}

std::vector<DeviceId> spread_over_nodes(const SplitSpace& space,
                                        const std::vector<DeviceId>& devices) {
  std::map<NodeId, int> counts;
  std::vector<std::pair<int, DeviceId>> places;  // of each on its node
  for (const DeviceId device : devices)
    places.emplace_back(counts[space.problem().cluster->device(device).node]++, device);
  std::sort(places.begin(), places.end());
  std::vector<DeviceId> spread;
  for (const auto& [place, device] : places) spread.push_back(device);
  return spread;
}

Team make_team(const SplitSpace& space, std::vector<DeviceId> devices) {
  std::sort(devices.begin(), devices.end());
  Team team(space.types().size());
  for (std::size_t i = 0; i < team.size(); ++i) team[i].type = &space.types()[i];
  for (const DeviceId device : devices) team[space.type_of(device)].members.push_back(device);
  std::erase_if(team, [](const Crew& crew) { return crew.members.empty(); });
  for (Crew& crew : team) crew.spread = spread_over_nodes(space, crew.members);
  return team;
}

void take_minimum(std::vector<double>& least, const std::vector<double>& other) {
  for (std::size_t k = 0; k < least.size(); ++k) least[k] = std::min(least[k], other[k]);
}

/// Searches one pool; the result is shared by all of them.
class PoolSearch {
 public:
  PoolSearch(const SplitSpace& space, const std::vector<DeviceId>& pool, SplitSearch& result)
      : space_(space), team_(make_team(space, pool)), result_(result) {
    most_ = std::min(static_cast<std::int64_t>(pool.size()), space.batch() / space.least());
    if (most_ >= 2) times_ = space.evaluator().least_times(pool, static_cast<std::size_t>(most_));
  }

  void run() {
    if (most_ < 2) return;
    // Slowest updaters first, so that the first case has all devices.
    std::vector<std::vector<double>> updaters;
    for (const Crew& crew : team_) updaters.push_back(crew.type->update_tails);
    std::sort(updaters.begin(), updaters.end(), std::greater<>());
    updaters.erase(std::unique(updaters.begin(), updaters.end()), updaters.end());
    for (const std::vector<double>& slowest : updaters) {
      Team team;
      for (const Crew& crew : team_) {
        if (total(crew.type->update_tails) <= total(slowest)) team.push_back(crew);
      }
      run_updater(team, slowest);
    }
  }

 private:
  static double total(const std::vector<double>& tails) { return tails.empty() ? 0 : tails[0]; }

  void run_updater(const Team& team, const std::vector<double>& slowest) {
    const std::int64_t most = std::min(most_, size_of(team));
    if (most < 2) return;
    prepare_tails(slowest, most);
    descend(team, most);
    std::int64_t k = 2;
    while (k <= most) {
      const Filling filling(team, least_tails_[index(k)], goal(k));
      const double within = result_.model_seconds - least_blocking_[index(k)];
      const std::int64_t needed = filling.devices_needed(within);
      if (needed > most) return;
      if (needed > k) {
        k = needed;
        continue;
      }
      (void)solve(team, k);
      ++k;
    }
  }

  /// A good first answer, which rules out most numbers of devices: from all devices downhill in
  /// halving steps.
  void descend(const Team& team, std::int64_t most) {
    (void)solve(team, most);
    std::int64_t k = most;
    for (std::int64_t step = most / 2; step >= 1; step /= 2) {
      if (k - step >= 2 && solve(team, k - step)) {
        k -= step;
      } else if (k + step <= most && solve(team, k + step)) {
        k += step;
      }
    }
  }

  /// W for each number of devices, and the least W for that many or more.
  void prepare_tails(const std::vector<double>& slowest, std::int64_t most) {
    tails_.clear();
    least_blocking_.clear();
    for (std::int64_t k = 2; k <= most; ++k) {
      tails_.push_back(exchange_tails(times_[index(k)].exchange, slowest));
      least_blocking_.push_back(times_[index(k)].blocking);
    }
    least_tails_ = tails_;
    for (std::size_t i = tails_.size() - 1; i-- > 0;) {
      take_minimum(least_tails_[i], least_tails_[i + 1]);
      least_blocking_[i] = std::min(least_blocking_[i], least_blocking_[i + 1]);
    }
  }

  /// Does some split over at most k devices of the team beat the best so far?
  bool solve(const Team& team, std::int64_t k) {
    const Filling filling(team, tails_[index(k)], goal(k));
    const double blocking = times_[index(k)].blocking;
    const auto solution = filling.solve(result_.model_seconds - blocking, 0.0);
    if (!solution) return false;
    ++result_.considered;
    result_.lower_bound = std::min(result_.lower_bound, blocking + solution->seconds);
    // Devices that are alike may lie on few nodes or on many, which exchanges may tell apart.
    const bool is_better = take(make_split(team, filling, goal(k), *solution));
    return take(make_split(team, filling, goal(k), *solution, &Crew::spread)) || is_better;
  }

  /// Is it the best so far?
  bool take(BatchSplit split) {
    const double seconds = model_step(space_.evaluator(), split);
    if (seconds >= result_.model_seconds) return false;
    result_.model_seconds = seconds;
    result_.best = std::move(split);
    return true;
  }

  Filling::Goal goal(std::int64_t k) const { return {space_.batch(), space_.least(), k}; }
  static std::size_t index(std::int64_t k) { return static_cast<std::size_t>(k - 2); }

  const SplitSpace& space_;
  Team team_;
  SplitSearch& result_;
  std::int64_t most_ = 0;
  std::vector<GroupExchanges> times_;       // of 2, 3, ... devices
  std::vector<std::vector<double>> tails_;  // the same
  std::vector<std::vector<double>> least_tails_;
  std::vector<double> least_blocking_;
};

void try_alone(const SplitSpace& space, SplitSearch& result) {
  for (const DeviceType& type : space.types()) {
    if (type.alone_cap < space.batch()) continue;
    ++result.considered;
    BatchSplit split{{type.members[0]}, {space.batch()}};
    const double seconds = model_step(space.evaluator(), split);
    if (result.best && seconds >= result.model_seconds) continue;
    result.model_seconds = seconds;
    result.best = std::move(split);
  }
}

/// A bound that holds whatever exchanges cost: as if they cost nothing.
double bound_without_exchange(const SplitSpace& space, const SplitSearch& result) {
  const Team team = make_team(space, space.problem().devices);
  const std::vector<double> tails(space.types()[0].update_tails.size(), 0.0);
  const Filling filling(team, tails, {space.batch(), space.least(), size_of(team)});
  const auto solution = filling.solve(result.lower_bound, 0.0);
  return solution ? solution->seconds : result.lower_bound;
}

}  // namespace

SplitSearch find_best_split(const SplitSpace& space) {
  SplitSearch result;
  result.model_seconds = kInfinity;
  try_alone(space, result);
  result.lower_bound = kInfinity;
  const DevicePools pools = find_device_pools(*space.problem().cluster, space.problem().devices);
  for (const std::vector<DeviceId>& pool : pools.pools) PoolSearch(space, pool, result).run();
  result.lower_bound = std::min(result.lower_bound, result.model_seconds);
  if (!pools.complete) result.lower_bound = bound_without_exchange(space, result);
  return result;
}

std::optional<BatchSplit> find_best_split_of(const SplitSpace& space,
                                             const std::vector<DeviceId>& devices) {
  const Team team = make_team(space, devices);
  const Filling::Goal goal{space.batch(), space.least(), size_of(team)};
  if (goal.devices * goal.least > goal.batch) return std::nullopt;
  const GroupExchanges times = space.evaluator().group_times(devices);
  std::vector<double> slowest(times.exchange.size(), 0.0);
  for (const Crew& crew : team) {
    if (crew.type->shared_cap < goal.least) return std::nullopt;
    for (std::size_t k = 0; k < slowest.size(); ++k) {
      slowest[k] = std::max(slowest[k], crew.type->update_tails[k]);
    }
  }
  const std::vector<double> tails = exchange_tails(times.exchange, slowest);
  const Filling filling(team, tails, goal);
  double floor = 0.0;
  for (std::size_t i = 0; i < team.size(); ++i) {
    floor = std::max(floor, filling.value(i, goal.least));
  }
  const auto solution = filling.solve(kInfinity, floor);
  if (!solution) return std::nullopt;
  return make_split(team, filling, goal, *solution);
}

}  // namespace motley::search
