#include "motley/search/split/split_search.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "motley/base/check.h"
#include "motley/cost/step/filling.h"

namespace motley::search {
namespace {

using cost::Filling;
using cost::StepRamp;
using Setting = SplitEvaluator::Setting;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Devices of one type that may take part.
struct Crew {
  const DeviceType* type = nullptr;
  std::vector<DeviceId> members;  // in cluster order
  std::vector<DeviceId> spread;   // the same, round-robin over nodes
  std::size_t number = 0;         // index in the team of all
};
using Team = std::vector<Crew>;

std::int64_t size_of(const Crew& crew) { return static_cast<std::int64_t>(crew.members.size()); }

std::int64_t size_of(const Team& team) {
  std::int64_t size = 0;
  for (const Crew& crew : team) size += size_of(crew);
  return size;
}

/// Returns f of each crew's devices for one W. References must outlive it.
std::vector<StepRamp> make_ramps(const Team& team, const std::vector<double>& tails) {
  std::vector<StepRamp> ramps;
  ramps.reserve(team.size());
  for (const Crew& crew : team)
    ramps.emplace_back(
        *crew.type->shared, tails,
        StepRamp::Limits{static_cast<double>(crew.type->shared_cap), crew.type->shares_points});
  return ramps;
}

/// Returns the crews for water-filling. References must outlive it.
std::vector<Filling::Crew> make_crews(const SplitSpace& space, const Team& team,
                                      const std::vector<StepRamp>& ramps) {
  std::vector<Filling::Crew> crews;
  crews.reserve(team.size());
  for (std::size_t i = 0; i < team.size(); ++i)
    crews.push_back({&ramps[i], space.least(), team[i].type->shared_cap, team[i].members});
  return crews;
}

std::vector<DeviceId> spread_over_nodes(const SplitSpace& space,
                                        const std::vector<DeviceId>& devices) {
  std::map<NodeId, int> counts;
  std::vector<std::pair<int, DeviceId>> places;  // index of each on its node
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
  for (std::size_t i = 0; i < team.size(); ++i) team[i].number = i;
  return team;
}

/// Returns the best split of a whole group if it takes less than `limit`.
std::optional<BatchSplit> split_group(const SplitSpace& space, const Team& team, double limit) {
  const Filling::Goal goal{space.batch(), size_of(team)};
  if (goal.devices * space.least() > goal.batch) return std::nullopt;
  std::vector<DeviceId> devices;
  for (const Crew& crew : team)
    devices.insert(devices.end(), crew.members.begin(), crew.members.end());
  std::sort(devices.begin(), devices.end());
  const GroupExchanges times = space.evaluator().group_times(devices);
  std::vector<double> slowest(times.exchange.size(), 0.0);
  for (const Crew& crew : team) {
    if (crew.type->shared_cap < space.least()) return std::nullopt;
    for (std::size_t k = 0; k < slowest.size(); ++k) {
      slowest[k] = std::max(slowest[k], crew.type->update_tails[k]);
    }
  }
  const std::vector<double> tails = exchange_tails(times.exchange, slowest);
  const std::vector<StepRamp> ramps = make_ramps(team, tails);
  const Filling filling(make_crews(space, team, ramps), goal);
  const auto solution = filling.solve(limit - times.blocking, filling.least_of_all());
  if (!solution) return std::nullopt;
  BatchSplit split;
  for (const auto& [device, samples] : filling.hand_out(*solution)) {
    split.devices.push_back(device);
    split.samples.push_back(samples);
  }
  return split;
}

void take_minimum(std::vector<double>& least, const std::vector<double>& other) {
  for (std::size_t k = 0; k < least.size(); ++k) least[k] = std::min(least[k], other[k]);
}

/// Caches a team's ramps for the last W: adjacent numbers of devices often share it.
class LastRamps {
 public:
  const std::vector<StepRamp>& of(const Team& team, const std::vector<double>& tails) {
    if (team_ == &team && tails_ == tails) return ramps_;
    team_ = &team;
    tails_ = tails;
    ramps_ = make_ramps(team, tails_);
    return ramps_;
  }

 private:
  const Team* team_ = nullptr;
  std::vector<double> tails_;
  std::vector<StepRamp> ramps_;
};

class PoolSearch {
 public:
  PoolSearch(const SplitSpace& space, const std::vector<DeviceId>& pool, SplitSearch& result)
      : space_(space), team_(make_team(space, pool)), result_(result) {
    for (Crew& crew : team_) crew.spread = spread_over_nodes(space, crew.members);
    most_ = std::min(static_cast<std::int64_t>(pool.size()), space.batch() / space.least());
    if (most_ >= 2) times_ = space.evaluator().least_times(pool, static_cast<std::size_t>(most_));
  }

  void run() {
    if (most_ < 2) return;
    // The slowest updaters come first, so the first case has all devices.
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
    LastRamps ramps, least_ramps;
    descend(team, most, ramps);
    std::int64_t k = 2;
    while (k <= most) {
      const Filling filling(make_crews(space_, team, least_ramps.of(team, least_tails_[index(k)])),
                            goal(k));
      const double within = result_.model_seconds - least_blocking_[index(k)];
      const std::int64_t needed = filling.devices_needed(within);
      if (needed > most) return;
      if (needed > k) {
        k = needed;
        continue;
      }
      (void)solve(team, k, ramps);
      ++k;
    }
  }

  /// Finds a first answer that rules out most numbers of devices: hill climbing with halving steps.
  void descend(const Team& team, std::int64_t most, LastRamps& ramps) {
    (void)solve(team, most, ramps);
    std::int64_t k = most;
    for (std::int64_t step = most / 2; step >= 1; step /= 2) {
      if (k - step >= 2 && solve(team, k - step, ramps)) {
        k -= step;
      } else if (k + step <= most && solve(team, k + step, ramps)) {
        k += step;
      }
    }
  }

  /// Computes W for each number of devices, and the least W of that many or more.
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

  /// Does a split over at most k devices of the team beat the best so far?
  bool solve(const Team& team, std::int64_t k, LastRamps& ramps) {
    const Filling filling(make_crews(space_, team, ramps.of(team, tails_[index(k)])), goal(k));
    const double blocking = times_[index(k)].blocking;
    const auto solution = filling.solve(result_.model_seconds - blocking, 0.0);
    if (!solution) return false;
    ++result_.considered;
    result_.lower_bound = std::min(result_.lower_bound, blocking + solution->seconds);
    // Identical devices may be on few or on many nodes, which exchanges may distinguish.
    const bool is_better = take(team, solution->loads, k, &Crew::members);
    return take(team, solution->loads, k, &Crew::spread) || is_better;
  }

  /// Is the split over the crews' first k devices in all the best so far? Prices each group once.
  bool take(const Team& team, const std::vector<Filling::Load>& loads, std::int64_t k,
            std::vector<DeviceId> Crew::*order) {
    std::vector<std::int32_t> counts(team_.size() + 1, 0);
    Team group;
    for (const Filling::Load& load : loads) {
      const Crew& crew = team[load.crew];
      const std::int64_t taken = std::min(k, size_of(crew));
      k -= taken;
      counts[crew.number] = static_cast<std::int32_t>(taken);
      if (taken < size_of(crew) && order == &Crew::spread) counts.back() = 1;
      const std::vector<DeviceId>& first = crew.*order;
      group.push_back({crew.type, {first.begin(), first.begin() + taken}, {}, crew.number});
    }
    if (!priced_.insert(std::move(counts)).second) return false;
    auto split = split_group(space_, group, result_.model_seconds);
    if (!split) return false;
    const double seconds = model_step(space_.evaluator(), *split);
    if (seconds >= result_.model_seconds) return false;
    result_.model_seconds = seconds;
    result_.best = std::move(*split);
    return true;
  }

  Filling::Goal goal(std::int64_t k) const { return {space_.batch(), k}; }
  static std::size_t index(std::int64_t k) { return static_cast<std::size_t>(k - 2); }

  const SplitSpace& space_;
  Team team_;
  SplitSearch& result_;
  std::int64_t most_ = 0;
  std::vector<GroupExchanges> times_;       // of 2, 3, ... devices
  std::vector<std::vector<double>> tails_;  // likewise
  std::vector<std::vector<double>> least_tails_;
  std::vector<double> least_blocking_;
  // Priced groups: devices per crew, then 1 if spread over as many nodes as possible.
  std::set<std::vector<std::int32_t>> priced_;
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

/// Returns equal numbers for devices with equal times and exchanges.
std::vector<int> likeness_of(const SplitSpace& space) {
  std::map<std::tuple<std::size_t, std::string_view, std::string_view>, int> numbers;
  std::vector<int> likeness;
  for (const DeviceId id : space.problem().devices) {
    const cluster::Device& device = space.problem().cluster->device(id);
    const auto next = static_cast<int>(numbers.size());
    likeness.push_back(
        numbers.try_emplace({space.type_of(id), device.kind, device.model}, next).first->second);
  }
  return likeness;
}

/// Returns a bound for any exchange costs: with free exchanges.
double bound_without_exchange(const SplitSpace& space, const SplitSearch& result) {
  const Team team = make_team(space, space.problem().devices);
  const std::vector<double> tails(space.types()[0].update_tails.size(), 0.0);
  const std::vector<StepRamp> ramps = make_ramps(team, tails);
  const Filling filling(make_crews(space, team, ramps), {space.batch(), size_of(team)});
  const auto solution = filling.solve(result.lower_bound, 0.0);
  return solution ? solution->seconds : result.lower_bound;
}

}  // namespace

SplitSearch find_best_split(const SplitSpace& space) {
  SplitSearch result;
  result.model_seconds = kInfinity;
  try_alone(space, result);
  result.lower_bound = kInfinity;
  const DevicePools pools =
      find_device_pools(*space.problem().cluster, space.problem().devices, likeness_of(space));
  for (const std::vector<DeviceId>& pool : pools.pools) PoolSearch(space, pool, result).run();
  result.lower_bound = std::min(result.lower_bound, result.model_seconds);
  if (!pools.complete) result.lower_bound = bound_without_exchange(space, result);
  return result;
}

std::optional<BatchSplit> find_best_split_of(const SplitSpace& space,
                                             const std::vector<DeviceId>& devices) {
  return split_group(space, make_team(space, devices), kInfinity);
}

}  // namespace motley::search
