#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <queue>
#include <utility>

#include "peers/spaces/restricted_search.h"

namespace motley::peers {
namespace {

/// A group's units, fastest first.
using ZorseGroup = std::vector<std::size_t>;
enum class HostOrder { kInARow, kDealt };

/// Returns seconds of a micro-batch through all layers.
double whole_pass(const search::StageSums& sums, std::size_t unit, std::int64_t micro) {
  return sums.work(unit, micro).pass(0, sums.costs().layers());
}

/// Checks for groups of equal size with known times; else empty.
std::vector<ZorseGroup> checked(const RestrictedSearch& search, std::vector<ZorseGroup> groups,
                                std::int64_t micro) {
  for (ZorseGroup& group : groups) {
    if (group.empty() || group.size() != groups.front().size()) return {};
    for (const std::size_t unit : group)
      if (!search.costs().knows(unit, micro)) return {};
    std::stable_sort(group.begin(), group.end(), [&](std::size_t a, std::size_t b) {
      return whole_pass(search.sums(), a, micro) < whole_pass(search.sums(), b, micro);
    });
  }
  return groups;
}

/// Makes `count` groups of equal numbers of hosts, with all members of one degree.
std::vector<ZorseGroup> group_hosts(const RestrictedSearch& search, std::size_t count, int degree,
                                    std::size_t way, HostOrder order) {
  std::vector<std::pair<std::size_t, int>> hosts;  // unit, members
  for (std::size_t pool = 0; pool < search.costs().pools().size(); ++pool) {
    const search::DevicePool& of = search.costs().pools()[pool];
    const auto unit = search.unit(pool, degree, way);
    if (!unit) return {};
    for (int left = of.devices; left > 0; left -= of.per_host) {
      const int devices = std::min(left, of.per_host);
      if (devices % degree != 0) return {};
      hosts.emplace_back(*unit, devices / degree);
    }
  }
  if (hosts.size() % count != 0) return {};
  std::vector<ZorseGroup> groups(count);
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    ZorseGroup& group =
        groups[order == HostOrder::kDealt ? host % count : host / (hosts.size() / count)];
    group.insert(group.end(), static_cast<std::size_t>(hosts[host].second), hosts[host].first);
  }
  return groups;
}

/// Makes a group of each pool, with `members` members; degrees may differ.
std::vector<ZorseGroup> group_pools(const RestrictedSearch& search, int members, std::size_t way) {
  std::vector<ZorseGroup> groups;
  for (std::size_t pool = 0; pool < search.costs().pools().size(); ++pool) {
    const int devices = search.costs().pools()[pool].devices;
    const auto unit = search.unit(pool, devices / members, way);
    if (devices % members != 0 || !unit) return {};
    groups.emplace_back(static_cast<std::size_t>(members), *unit);
  }
  return groups;
}

/// Cuts layers to make the slowest group, with all its members, as fast as possible, each member
/// with 1F1B's micro-batches in flight; empty: nothing fits.
std::vector<std::size_t> cut_by_speed(const search::StageSums& sums,
                                      const std::vector<ZorseGroup>& groups, std::int64_t micro) {
  struct Cut {
    double slowest = std::numeric_limits<double>::infinity();
    std::size_t begin = 0;
  };
  const std::size_t layers = sums.costs().layers();
  std::vector<std::vector<Cut>> best(groups.size() + 1, std::vector<Cut>(layers + 1));
  best[0][0].slowest = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    std::map<std::size_t, int> members;
    for (const std::size_t unit : groups[g]) ++members[unit];
    const auto kept = static_cast<std::int64_t>(groups.size() - g);
    for (std::size_t begin = 0; begin < layers; ++begin)
      for (std::size_t end = begin + 1; std::isfinite(best[g][begin].slowest) && end <= layers;
           ++end) {
        double rate = 0;
        bool fits = true;
        for (const auto& [unit, count] : members) {
          rate += count / sums.work(unit, micro).pass(begin, end);
          fits = fits && sums.most_in_flight(unit, begin, end, micro, kept) >= kept;
        }
        const double slowest = std::max(best[g][begin].slowest, 1 / rate);
        if (fits && slowest < best[g + 1][end].slowest) best[g + 1][end] = {slowest, begin};
      }
  }
  if (!std::isfinite(best.back().back().slowest)) return {};
  std::vector<std::size_t> cuts = {layers};
  for (std::size_t g = groups.size(); g > 0; --g)
    cuts.insert(cuts.begin(), best[g][cuts.front()].begin);
  return cuts;
}

/// Deals whole micro-batches by speed, at least one each; the remainder goes to the fastest.
/// `offset`: of a replica's end, beside `pace` seconds per micro-batch.
std::vector<std::int64_t> deal(std::int64_t batch, std::int64_t micro,
                               const std::vector<double>& offset, const std::vector<double>& pace) {
  std::vector<std::int64_t> samples(pace.size(), micro);
  using End = std::pair<double, std::size_t>;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends;  // with one micro-batch more
  for (std::size_t r = 0; r < pace.size(); ++r) ends.emplace(offset[r] + 2 * pace[r], r);
  std::int64_t left = batch - micro * static_cast<std::int64_t>(pace.size());
  while (left > 0) {
    const auto [end, r] = ends.top();
    ends.pop();
    samples[r] += std::min(left, micro);
    left -= micro;
    ends.emplace(end + pace[r], r);
  }
  return samples;
}

void try_groups(RestrictedSearch& search, std::vector<ZorseGroup> groups, std::int64_t micro) {
  groups = checked(search, std::move(groups), micro);
  if (groups.empty() || groups.size() > search.most_stages()) return;
  const std::size_t replicas = groups.front().size();
  if (micro * static_cast<std::int64_t>(replicas) > search.batch()) return;
  const std::vector<std::size_t> cuts = cut_by_speed(search.sums(), groups, micro);
  if (cuts.empty()) return;
  std::vector<double> offset, pace;  // all stages once but the slowest; the slowest
  search::StagePlan plan;
  for (std::size_t r = 0; r < replicas; ++r) {
    search::StageReplica replica{{}, micro, 0};
    double once = 0, slowest = 0;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      replica.stages.push_back({cuts[g], cuts[g + 1], groups[g][r]});
      const double pass = search.sums().work(groups[g][r], micro).pass(cuts[g], cuts[g + 1]);
      once += pass;
      slowest = std::max(slowest, pass);
    }
    offset.push_back(once - slowest);
    pace.push_back(slowest);
    plan.replicas.push_back(std::move(replica));
  }
  const std::vector<std::int64_t> samples = deal(search.batch(), micro, offset, pace);
  double least = 0;  // lower bound of the replicas' time, without the remainder
  for (std::size_t r = 0; r < replicas; ++r) {
    plan.replicas[r].samples = samples[r];
    least = std::max(least, offset[r] + static_cast<double>(samples[r] / micro) * pace[r]);
  }
  if (least < search.best_step()) search.offer(std::move(plan));
}

}  // namespace

void search_zorse(RestrictedSearch& search) {
  for (const std::int64_t micro : search.costs().micro_batches())
    for (const int degree : search.degrees())
      for (std::size_t way = 0; way < search.ways(degree); ++way)
        for (std::size_t count = 1; count <= search.most_stages(); ++count)
          for (const HostOrder order : {HostOrder::kInARow, HostOrder::kDealt})
            try_groups(search, group_hosts(search, count, degree, way, order), micro);
  std::size_t most_ways = 1;
  for (const int degree : search.degrees()) most_ways = std::max(most_ways, search.ways(degree));
  for (const std::int64_t micro : search.costs().micro_batches())
    for (int members = 1; members <= search.costs().pools().front().devices; ++members)
      for (std::size_t way = 0; way < most_ways; ++way)
        try_groups(search, group_pools(search, members, way), micro);
}

}  // namespace motley::peers
