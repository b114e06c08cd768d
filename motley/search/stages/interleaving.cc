#include "motley/search/stages/interleaving.h"

#include <algorithm>
#include <utility>

namespace motley::search {
namespace {

constexpr std::size_t kMostTurns = 4;
constexpr std::size_t kMoved = 3;          // of the fastest, whose cuts are moved
constexpr double kWorthMovingCuts = 1e-3;  // of the time, by which a cut is better
constexpr double kWorthHolding = 0.01;     // by which an order is, that keeps more under way
constexpr double kWorthMoving = 1.05;      // times the fastest

/// 0 1 .. n-1, as often.
std::vector<std::size_t> make_rounds(std::size_t seats, std::size_t turns) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < seats * turns; ++i) order.push_back(i % seats);
  return order;
}

/// 0 1 .. n-1 n-2 .. 0 1 ..: there and back in turns, at whose ends a seat goes on with its own.
std::vector<std::size_t> make_waves(std::size_t seats, std::size_t turns) {
  std::vector<std::size_t> order = {0};
  for (std::size_t turn = 0; turn < turns; ++turn)
    for (std::size_t i = 1; i < seats; ++i)
      order.push_back(turn % 2 == 0 ? order.back() + 1 : order.back() - 1);
  return order;
}

std::vector<std::vector<std::size_t>> make_orders(std::size_t seats, std::size_t layers) {
  std::vector<std::vector<std::size_t>> orders;
  for (std::size_t turns = 2; turns <= kMostTurns; ++turns)
    for (auto& order : {make_waves(seats, turns), make_rounds(seats, turns)})
      if (order.size() <= layers && std::find(orders.begin(), orders.end(), order) == orders.end())
        orders.push_back(order);
  return orders;
}

/// Moves the ends of stages [from, to] by a layer; false, and all is as it was, where one would
/// have none left.
bool move_cuts(std::vector<PlannedStage>& stages, std::size_t from, std::size_t to, int by) {
  const std::vector<PlannedStage> before = stages;
  for (std::size_t i = from; i <= to; ++i) {
    const auto end = static_cast<std::size_t>(static_cast<std::int64_t>(stages[i].end) + by);
    stages[i].end = stages[i + 1].first = end;
  }
  const bool is_whole = std::all_of(stages.begin(), stages.end(), [](const PlannedStage& stage) {
    return stage.first < stage.end;
  });
  if (!is_whole) stages = before;
  return is_whole;
}

}  // namespace

/// Its step if it is alone: stages that share devices share their hosts' links, too. Absent: it
/// does not fit.
std::optional<Seconds> Interleaving::simulate(const StageReplica& replica) {
  left_ -= count_passes(replica);
  if (left_ <= 0) return std::nullopt;
  ++simulated_;
  const auto price = evaluator_.price({{replica}});
  return price && price->fits ? std::optional(price->step) : std::nullopt;
}

Seconds Interleaving::hope(const StageReplica& replica, Seconds alone) const {
  double slowest = 0;
  for (const PlannedStage& stage : replica.stages)
    slowest =
        std::max(slowest, sums_.work(stage.unit, replica.micro_batch).pass(stage.first, stage.end));
  const double busy =
      slowest * static_cast<double>(replica.samples) / static_cast<double>(replica.micro_batch);
  return Seconds(busy + std::max(0.0, alone.value - busy) / static_cast<double>(kMostTurns));
}

/// The fastest order of passes that fits; false: none does, or all has been simulated.
bool Interleaving::time(Found& found) {
  bool fits = false;
  for (const StageSchedule schedule : kInterleavedSchedules) {
    StageReplica tried = found.replica;
    tried.schedule = schedule;
    const auto seconds = simulate(tried);
    if (!seconds || (fits && *seconds >= found.seconds * (1 - kWorthHolding))) continue;
    found = {std::move(tried), *seconds};
    fits = true;
  }
  return fits;
}

/// Each stage gets layers until its seat has done its share of those so far.
std::optional<Interleaving::Found> Interleaving::deal(const StageReplica& replica,
                                                      const std::vector<std::size_t>& seats,
                                                      const std::vector<double>& shares) {
  Found found{replica, Seconds(0)};
  found.replica.stages.clear();
  found.replica.seats = seats;
  std::vector<double> done(shares.size(), 0), due(shares.size(), 0);
  std::size_t first = 0;
  const std::size_t layers = sums_.costs().layers();
  for (std::size_t i = 0; i < seats.size(); ++i) {
    const std::size_t seat = seats[i];
    PlannedStage stage = replica.stages[seat];
    const WorkSums& work = sums_.work(stage.unit, replica.micro_batch);
    const std::size_t most = layers - (seats.size() - 1 - i);
    due[seat] += shares[seat] / static_cast<double>(std::count(seats.begin(), seats.end(), seat));
    std::size_t end = i + 1 == seats.size() ? layers : first + 1;
    // The nearest to what is due.
    while (end < most &&
           done[seat] + (work.pass(first, end) + work.pass(first, end + 1)) / 2 < due[seat])
      ++end;
    done[seat] += work.pass(first, end);
    stage.first = first;
    stage.end = first = end;
    found.replica.stages.push_back(stage);
  }
  if (!time(found)) return std::nullopt;
  return found;
}

/// Seconds of a micro-batch on each seat: as many as it had, and the same on all, by the layers'
/// mean on each.
std::vector<std::vector<double>> Interleaving::find_shares(const StageReplica& replica) const {
  std::vector<double> had;
  double rate = 0;  // layers a second, all seats together
  const std::size_t layers = sums_.costs().layers();
  for (const PlannedStage& stage : replica.stages) {
    const WorkSums& work = sums_.work(stage.unit, replica.micro_batch);
    had.push_back(work.pass(stage.first, stage.end));
    rate += static_cast<double>(layers) / work.pass(0, layers);
  }
  const std::vector<double> even(had.size(), static_cast<double>(layers) / rate);
  return {had, even};
}

/// Cuts by a layer where that is quicker; false: nowhere.
bool Interleaving::move(Found& found) {
  const std::size_t seats =
      1 + *std::max_element(found.replica.seats.begin(), found.replica.seats.end());
  const std::size_t cuts = found.replica.stages.size() - 1;
  bool has_moved = false;
  for (std::size_t width = 1; width <= std::min(seats, cuts); ++width)
    for (std::size_t from = 0; from + width <= cuts; ++from)
      for (const int by : {-1, 1}) {
        StageReplica tried = found.replica;
        if (!move_cuts(tried.stages, from, from + width - 1, by)) continue;
        const auto seconds = simulate(tried);
        if (!seconds || *seconds >= found.seconds * (1 - kWorthMovingCuts)) continue;
        found = {std::move(tried), *seconds};
        has_moved = true;
      }
  return has_moved;
}

StageReplica Interleaving::in_fastest_ways(StageReplica replica) const {
  const StageCosts& costs = sums_.costs();
  const std::int64_t rest = replica.samples % replica.micro_batch;
  const double times =
      static_cast<double>(replica.samples) / static_cast<double>(replica.micro_batch);
  for (std::size_t s = 0; s < replica.stages.size(); ++s) {
    PlannedStage& stage = replica.stages[s];
    const StageUnit known = costs.units()[stage.unit];
    const auto takes = [&](std::size_t unit) {
      const WorkSums& work = sums_.work(unit, replica.micro_batch);
      return times * work.pass(stage.first, stage.end) + work.update[stage.end] -
             work.update[stage.first];
    };
    for (std::size_t unit = 0; unit < costs.units().size(); ++unit)
      if (costs.units()[unit] == known && costs.knows(unit, replica.micro_batch) &&
          (rest == 0 || costs.knows(unit, rest)) && takes(unit) < takes(stage.unit))
        stage.unit = unit;
  }
  return replica;
}

std::optional<StageReplica> Interleaving::find(const StageReplica& replica) {
  const std::optional<Seconds> without = simulate(replica);
  std::vector<Found> all;
  for (const auto& seats : make_orders(replica.stages.size(), sums_.costs().layers()))
    for (const std::vector<double>& shares : find_shares(replica))
      if (auto found = deal(replica, seats, shares)) all.push_back(*std::move(found));
  std::stable_sort(all.begin(), all.end(),
                   [](const Found& a, const Found& b) { return a.seconds < b.seconds; });
  for (std::size_t i = 0; i < std::min(all.size(), kMoved); ++i) {
    if (all[i].seconds > all.front().seconds * kWorthMoving) break;
    while (move(all[i])) continue;
    if (Found again = all[i]; time(again) && again.seconds < all[i].seconds)
      all[i] = std::move(again);
  }
  const auto best = std::min_element(
      all.begin(), all.end(), [](const Found& a, const Found& b) { return a.seconds < b.seconds; });
  if (best == all.end() || (without && best->seconds >= *without)) return std::nullopt;
  return best->replica;
}

}  // namespace motley::search
