#include "motley/search/stages/stage_transfers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "motley/search/stages/costs/unit_hops.h"

namespace motley::search {
namespace {

tl::unexpected<Error> no_link(const StageCosts& costs, const PlacedStage& from,
                              const PlacedStage& to) {
  return usage_error("search.stages",
                     fmt::format("no link from {} to {}", kinds_text(*from.unit, costs),
                                 kinds_text(*to.unit, costs)));
}

}  // namespace

PlacedStages place_in_cluster(const StagePlan& plan, const StageCosts& costs) {
  PlacedStages placed;
  for (const StageReplica& replica : plan.replicas) {
    placed.emplace_back();
    for (const PlannedStage& stage : replica.stages) {
      const StageUnit& unit = costs.units()[stage.unit];
      placed.back().push_back({&stage, &unit, costs.pools()[unit.pool()].first_host + stage.host});
    }
  }
  return placed;
}

/// Returns the link out of a host (0), or into it (1).
std::int32_t StageTransfers::link(const PlacedStage& of, int direction) {
  const auto [at, is_new] = links_.emplace(2 * of.host + direction, capacities_.size());
  // Host pools share a card: the fastest one's rate is taken for it.
  const double rate = host_rate(costs_, *of.unit).value;
  if (is_new) capacities_.push_back(rate);
  double& capacity = capacities_[at->second];
  capacity = std::max(capacity, rate);
  return static_cast<std::int32_t>(at->second);
}

Result<double> StageTransfers::message_seconds(const PlacedStage& from, const PlacedStage& to,
                                               Bytes bytes) {
  const MessageKey key = key_of(from, to, bytes);
  if (const auto known = message_seconds_.find(key); known != message_seconds_.end())
    return known->second;
  const HopReach reach = from.host == to.host ? HopReach::kSameHost : HopReach::kOtherHost;
  const auto hop = find_hop(costs_, *from.unit, *to.unit, reach, bytes);
  if (!hop) return no_link(costs_, from, to);
  const double time = hop->delay.value + static_cast<double>(bytes.value) / hop->rate.value;
  message_seconds_.emplace(key, time);
  return time;
}

Result<simulate::TaskId> StageTransfers::add_message(simulate::TaskGraphBuilder& builder,
                                                     simulate::LaneId lane, const PlacedStage& from,
                                                     const PlacedStage& to, Bytes bytes) {
  if (from.host == to.host || sharing_ == LinkSharing::kAlone) {
    MOTLEY_ASSIGN(const double seconds, message_seconds(from, to, bytes));
    return builder.add(lane, simulate::to_nanoseconds(Seconds(seconds)));
  }
  const MessageKey key = key_of(from, to, bytes);
  auto known = messages_.find(key);
  if (known == messages_.end()) {
    const auto hop = find_hop(costs_, *from.unit, *to.unit, HopReach::kOtherHost, bytes);
    if (!hop) return no_link(costs_, from, to);
    const cost::Flow flow{static_cast<double>(bytes.value),
                          {{link(from, 0), 1.0}, {link(to, 1), 1.0}},
                          hop->rate.value};
    known = messages_.emplace(key, builder.add_transfer({{{hop->delay, {flow}}}})).first;
  }
  return builder.add(lane, known->second);
}

Result<cost::Transfer> StageTransfers::ring(const std::vector<PlacedStage>& members, double bytes) {
  struct Host {
    PlacedStage stage;
    int devices = 0, members = 0;
  };
  std::vector<Host> hosts;
  int degree = members.front().unit->degree();
  for (const PlacedStage& member : members) degree = std::min(degree, member.unit->degree());
  for (const PlacedStage& member : members) {
    const auto known = std::find_if(hosts.begin(), hosts.end(), [&](const Host& host) {
      return host.stage.host == member.host && host.stage.unit->is_like(*member.unit);
    });
    Host& host = known == hosts.end() ? hosts.emplace_back(Host{member}) : *known;
    host.devices += degree;
    ++host.members;
  }
  const auto count = static_cast<double>(members.size());
  const double moved = 2 * (count - 1) / count * bytes;
  cost::Flow flow{moved, {}, 0};
  // A message goes from one to all, and back, in as many steps as doublings make them.
  const double steps = 2 * std::ceil(std::log2(count));
  Seconds delay;
  double slowest = INFINITY, local = INFINITY;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const Host &from = hosts[i], &to = hosts[(i + 1) % hosts.size()];
    const bool stays = from.stage.host == to.stage.host;
    const HopReach reach = stays ? HopReach::kSameHost : HopReach::kOtherHost;
    const int parts = std::min(from.members, to.members);
    const Bytes chunk(std::max<std::int64_t>(1, std::llround(bytes / count * parts)));
    const auto hop = find_hop(costs_, {*from.stage.unit, from.devices},
                              {*to.stage.unit, to.devices}, reach, chunk);
    if (!hop) return no_link(costs_, from.stage, to.stage);
    (stays ? local : slowest) = std::min(stays ? local : slowest, hop->rate.value);
    delay = std::max(delay, hop->delay * steps);
    if (stays) continue;
    flow.uses.push_back({link(from.stage, 0), 1.0});
    flow.uses.push_back({link(to.stage, 1), 1.0});
  }
  // Inside one host all members send a part in each round: the rate is that of all of them.
  if (flow.uses.empty()) return cost::Transfer{{{delay + Seconds(count * moved / local), {}}}};
  flow.most_rate = std::min(slowest, local);
  cost::merge_uses(flow);
  return cost::Transfer{{{delay, {flow}}}};
}

}  // namespace motley::search
