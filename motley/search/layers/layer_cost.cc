#include "motley/search/layers/layer_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace motley::search {
namespace {

/// bytes; the measured rate is an upper bound below this size (cost/layers/stage_network.h). A
/// collective's parts follow each other, so they move at the rate of this size.
constexpr std::int64_t kLeastRated = 1'000'000;

}  // namespace

LayerCost::LayerCost(std::shared_ptr<const cost::LayerProfile> profile, std::int64_t rows,
                     std::vector<DevicePool> pools, std::shared_ptr<const HopCosts> hops,
                     const StageRuntime& runtime, std::map<std::string, LayerSeat> seats)
    : pools_(std::move(pools)),
      hops_(std::move(hops)),
      runtime_(runtime),
      seats_(std::make_move_iterator(seats.begin()), std::make_move_iterator(seats.end())) {
  for (const DevicePool& pool : pools_) layers_.try_emplace(pool.kind, profile, rows, pool.kind);
  for (const auto& [name, seat] : seats_)
    for (const int direction : {0, 1}) {
      const auto next = static_cast<std::int32_t>(capacities_.size());
      const auto [known, is_new] = links_.try_emplace({seat.host, direction}, next);
      // Pools of a host share its network card: the fastest pool's rate counts. 0: nothing is sent.
      const double rate = std::max(1.0, hops_->host_rate(seat.pool).value);
      if (is_new) capacities_.push_back(rate);
      double& capacity = capacities_[static_cast<std::size_t>(known->second)];
      capacity = std::max(capacity, rate);
    }
}

Result<const LayerSeat*> LayerCost::seat(const std::string& device) const {
  const auto found = seats_.find(device);
  if (found == seats_.end())
    return usage_error("cost.layers", fmt::format("device {} has no place in the plan", device));
  return &found->second;
}

Result<cost::CostModel::Times> LayerCost::times(const program::DeviceProgram& program) const {
  MOTLEY_ASSIGN(const LayerSeat* place, seat(program.device));
  MOTLEY_ASSIGN(const auto answers, layers_.at(pools_[place->pool].kind).find(program));
  Times times;
  for (const cost::TimeSource::Answer& answer : answers) {
    times.seconds.push_back(answer.seconds);
    times.scratch.push_back(answer.scratch);
  }
  return times;
}

Result<Hop> LayerCost::hop(HopEnd from, HopEnd to, HopReach reach, Bytes bytes) const {
  const auto found = hops_->hop(from, to, reach, bytes);
  if (!found)
    return usage_error("search.stages", fmt::format("no link from {} to {}", pools_[from.pool].kind,
                                                    pools_[to.pool].kind));
  return *found;
}

/// Prices one of min(senders, receivers) parts, all sent at once.
Result<cost::Transfer> LayerCost::send(Bytes bytes, const LayerSeat& from,
                                       const LayerSeat& to) const {
  const int parts = std::min(from.degree, to.degree);
  // Each member sends all of it.
  if (runtime_.sends_whole) bytes = bytes * parts;
  const bool is_same = from.host == to.host;
  MOTLEY_ASSIGN(const Hop found, hop({from.pool, from.degree}, {to.pool, to.degree},
                                     is_same ? HopReach::kSameHost : HopReach::kOtherHost,
                                     Bytes(std::max<std::int64_t>(1, bytes.value) * parts)));
  const double rate = found.rate.value / parts;
  const auto moved = static_cast<double>(bytes.value);
  if (is_same) return cost::Transfer{{{found.delay + Seconds(moved / rate), {}}}};
  cost::Flow flow{moved, {{link(from.host, 0), 1.0}, {link(to.host, 1), 1.0}}, rate};
  return cost::Transfer{{{found.delay, {std::move(flow)}}}};
}

/// Moves `rounds` times (n - 1) / n of the bytes out of each device, host by host.
Result<cost::Transfer> LayerCost::ring(double rounds, Bytes bytes,
                                       const std::vector<HostMembers>& hosts, int degree) const {
  double count = 0;
  for (const HostMembers& each : hosts) count += each.members;
  const double moved = rounds * (count - 1) / count * static_cast<double>(bytes.value);
  // Latency: a message reaches all members, and returns, in log2(n) steps each.
  const double steps = rounds * std::ceil(std::log2(count));
  cost::Flow flow{moved, {}, 0};
  Seconds delay;
  // Inside a host each device sends at its share of the combined rate.
  const auto inside = [&](const HostMembers& host) {
    return hop({host.pool, host.members * degree}, {host.pool, host.members * degree},
               HopReach::kSameHost, Bytes(std::max(kLeastRated * host.members, bytes.value)));
  };
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const HostMembers &from = hosts[i], &to = hosts[(i + 1) % hosts.size()];
    if (from.host == to.host && hosts.size() > 1) continue;
    if (hosts.size() == 1) {
      MOTLEY_ASSIGN(const Hop found, inside(from));
      const double each = found.rate.value / (from.members * degree);
      return cost::Transfer{{{found.delay * steps + Seconds(moved / each), {}}}};
    }
    const int parts = std::min(from.members, to.members);
    const Bytes chunk(std::max<std::int64_t>(
        kLeastRated * parts * degree,
        std::llround(static_cast<double>(bytes.value) * degree / count * parts)));
    MOTLEY_ASSIGN(const Hop found,
                  hop({from.pool, from.members * degree}, {to.pool, to.members * degree},
                      HopReach::kOtherHost, chunk));
    const double rate = found.rate.value / degree;
    flow.most_rate = flow.most_rate > 0 ? std::min(flow.most_rate, rate) : rate;
    delay = std::max(delay, found.delay * steps);
    flow.uses.push_back({link(from.host, 0), 1.0});
    flow.uses.push_back({link(to.host, 1), 1.0});
  }
  if (flow.uses.empty()) {  // several pools of one host
    double each = 0;
    for (const HostMembers& host : hosts) {
      MOTLEY_ASSIGN(const Hop found, inside(host));
      const double rate = found.rate.value / (host.members * degree);
      each = each > 0 ? std::min(each, rate) : rate;
    }
    return cost::Transfer{{{Seconds(moved / each), {}}}};
  }
  cost::merge_uses(flow);
  return cost::Transfer{{{delay, {std::move(flow)}}}};
}

Result<cost::Transfer> LayerCost::transfer(std::string_view op, const cost::ExchangeSize& size,
                                           const std::vector<std::string>& devices) const {
  const Bytes bytes = size.bytes;
  std::vector<const LayerSeat*> seats;
  for (const std::string& device : devices) {
    MOTLEY_ASSIGN(const LayerSeat* found, seat(device));
    seats.push_back(found);
  }
  if (op == program::kSend) return send(bytes, *seats.at(0), *seats.at(1));
  if (seats.size() < 2) return cost::Transfer{};
  std::map<std::pair<int, std::size_t>, int> members;  // host, pool
  int degree = seats.front()->degree;
  for (const LayerSeat* each : seats) {
    ++members[{each->host, each->pool}];
    degree = std::min(degree, each->degree);
  }
  // Devices of one region exchange alone. Regions exchange in as many groups at once as their
  // smallest degree, one after the other on the devices of a smaller region.
  const bool is_one_region = std::all_of(seats.begin(), seats.end(), [&](const LayerSeat* each) {
    return each->region == seats.front()->region;
  });
  if (is_one_region) degree = 1;
  // The values were sent whole, so there is nothing to gather.
  if (is_one_region && runtime_.sends_whole && op == "motley::all_gather") return cost::Transfer{};
  std::vector<HostMembers> hosts;
  for (const auto& [place, count] : members) hosts.push_back({place.second, place.first, count});
  std::stable_sort(hosts.begin(), hosts.end(), [](const HostMembers& a, const HostMembers& b) {
    return std::pair(a.pool, a.host) < std::pair(b.pool, b.host);
  });
  return ring(op.starts_with("motley::all_reduce") ? 2 : 1, bytes, hosts, degree);
}

Result<Seconds> LayerCost::collective_time(std::string_view op, Bytes bytes,
                                           const std::vector<std::string>& devices) const {
  MOTLEY_ASSIGN(const cost::Transfer found, transfer(op, {bytes}, devices));
  Seconds sum;
  for (const cost::TransferPhase& phase : found.phases) {
    sum += phase.delay;
    for (const cost::Flow& flow : phase.flows) sum += Seconds(flow.bytes / flow.most_rate);
  }
  return sum;
}

}  // namespace motley::search
