#include "motley/search/stages/stage_evaluator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>

#include "motley/base/check.h"
#include "motley/search/stages/costs/unit_hops.h"
#include "motley/simulate/find_times.h"

namespace motley::search {
namespace {

using simulate::LaneId;
using simulate::TaskId;

constexpr std::int64_t kMostPasses = 20'000'000;

simulate::Nanoseconds in_nanoseconds(double seconds) {
  return static_cast<simulate::Nanoseconds>(std::llround(seconds * 1e9));
}

double in_seconds(simulate::Nanoseconds time) { return static_cast<double>(time) * 1e-9; }

/// A stage with its place in the cluster.
struct Seat {
  const PlannedStage* stage;
  const StageUnit* unit;
  int host;  // of the cluster
};

void sort_by_host(std::vector<Seat>& seats) {
  std::stable_sort(seats.begin(), seats.end(), [](const Seat& a, const Seat& b) {
    return std::pair(a.unit->pool(), a.host) < std::pair(b.unit->pool(), b.host);
  });
}

tl::unexpected<Error> no_link(const StageCosts& costs, const Seat& from, const Seat& to) {
  return usage_error("search.stages",
                     fmt::format("no link from {} to {}", kinds_text(*from.unit, costs),
                                 kinds_text(*to.unit, costs)));
}

/// A replica's costs: what its passes and messages take.
struct ReplicaCosts {
  std::vector<std::int64_t> sizes;  // samples by micro-batch
  plan::PipelineWork work;
  std::vector<double> update;  // by stage
};

/// What a stage does where messages block: passes, and messages with a neighbour.
struct StageOp {
  plan::StagePass pass;
  bool is_message = false;
  std::size_t edge =
      0;  // between stages edge and edge + 1; a backward pass's message is a gradient
};

/// A stage's passes with its messages in between. `next`: passes of the next stage, whose order
/// both ends of their edge follow; empty for the last. A stage takes part in a message only when it
/// must, so nobody waits in a circle.
std::vector<StageOp> with_messages(std::size_t stage, const plan::PassOrder& order,
                                   const plan::PassOrder& next) {
  std::vector<StageOp> all;
  std::size_t passed = 0;      // messages to and from the next stage
  std::int32_t gradients = 0;  // of them
  const auto exchange_up_to = [&](const plan::StagePass& wanted) {
    for (bool is_done = false; !is_done;) {
      const plan::StagePass& pass = next[passed++];
      if (pass.is_backward) ++gradients;
      all.push_back({pass, true, stage});
      is_done = pass.is_backward == wanted.is_backward && pass.micro == wanted.micro;
    }
  };
  for (const plan::StagePass& pass : order) {
    if (!pass.is_backward && stage > 0) all.push_back({pass, true, stage - 1});
    if (pass.is_backward && !next.empty() && pass.micro >= gradients) exchange_up_to(pass);
    all.push_back({pass});
    if (pass.is_backward && stage > 0) all.push_back({pass, true, stage - 1});
    if (!pass.is_backward && !next.empty()) exchange_up_to(pass);
  }
  return all;
}

/// Do messages share hosts' links with others, or has each what it has alone?
enum class LinkSharing { kShared, kAlone };

/// Builds one task graph of some replicas and reads its times.
class StepGraph {
 public:
  StepGraph(const StageSums& sums, const StagePlan& plan, LinkSharing sharing)
      : sums_(sums), plan_(plan), sharing_(sharing) {
    for (const StageReplica& replica : plan.replicas) {
      seats_.emplace_back();
      for (const PlannedStage& stage : replica.stages) {
        const StageUnit& unit = costs().units()[stage.unit];
        const DevicePool& pool = costs().pools()[unit.pool()];
        seats_.back().push_back({&stage, &unit, pool.first_host + stage.host});
      }
    }
  }

  Result<void> add_pipelines() {
    for (std::size_t r = 0; r < plan_.replicas.size(); ++r) {
      MOTLEY_RETURN_IF_ERROR(add_replica(r));
    }
    return {};
  }
  Result<void> add_exchanges();
  void add_updates();
  StagePrice run();
  /// In place of pipelines: when each stage has ended its last backward.
  void add_ends(const std::vector<std::vector<Seconds>>& last);
  /// Of all there is, in place of run().
  Seconds end();
  /// Of the layers that all first stages have, when nothing else is under way.
  Result<Seconds> first_exchange();

 private:
  using Tasks = std::vector<std::vector<TaskId>>;  // [replica][stage]
  const StageCosts& costs() const { return sums_.costs(); }

  std::size_t seat_of(std::size_t r, std::size_t s) const {
    return is_interleaved(plan_.replicas[r]) ? plan_.replicas[r].seats[s] : s;
  }
  LaneId lane_of(std::size_t r, std::size_t s) const { return lanes_[r][seat_of(r, s)]; }

  /// Out of a host, and into it.
  std::int32_t link(const Seat& seat, int direction) {
    const auto [at, is_new] = links_.emplace(2 * seat.host + direction, capacities_.size());
    // Host pools share a card: the fastest one's rate is taken for it.
    const double rate = host_rate(costs(), *seat.unit).value;
    if (is_new) capacities_.push_back(rate);
    double& capacity = capacities_[static_cast<std::size_t>(at->second)];
    capacity = std::max(capacity, rate);
    return static_cast<std::int32_t>(at->second);
  }

  Result<ReplicaCosts> price_replica(std::size_t r);
  Result<void> add_replica(std::size_t r);
  void begin_replica(const StageReplica& replica);
  void set_most_in_flight(const StageReplica& replica, std::int64_t largest,
                          plan::PipelineWork& work) const;
  StageBytes seat_bytes(const StageReplica& replica, const std::vector<std::size_t>& stages) const;
  /// Bytes of a sample under way in the stage.
  std::int64_t kept(const PlannedStage& stage) const {
    return sums_.bytes(stage.unit, stage.first, stage.end).per_sample;
  }
  Bytes peak(const StageReplica& replica, std::int64_t largest,
             const std::vector<std::size_t>& stages, const plan::PassOrder& order) const;
  Result<void> add_overlapping(std::size_t r, const ReplicaCosts& priced,
                               const std::vector<plan::PassOrder>& orders);
  Result<void> add_blocking(std::size_t r, const ReplicaCosts& priced,
                            const std::vector<plan::PassOrder>& orders);
  Result<TaskId> add_message(LaneId lane, const Seat& from, const Seat& to, Bytes bytes);
  Result<simulate::TransferId> message(const Seat& from, const Seat& to, Bytes bytes);
  Result<double> message_time(const Seat& from, const Seat& to, Bytes bytes);
  /// Replica and stage.
  using Place = std::pair<std::size_t, std::size_t>;
  /// Gradients that are summed by all that hold them.
  struct Sum {
    std::vector<Place> members;
    cost::Transfer transfer;
    double takes = 0;  // when nothing else is under way
  };
  Result<std::optional<Sum>> find_sum(std::vector<Place> members, std::size_t first,
                                      std::size_t end);
  void order(std::vector<Sum>& sums) const;
  void add_sum(Sum sum);
  LaneId sum_lane(const Place& place) { return sum_lanes_[place.first][place.second]; }
  Result<cost::Transfer> ring(const std::vector<Seat>& seats, double bytes);
  Result<void> add_tied();

  const StageSums& sums_;
  const StagePlan& plan_;
  LinkSharing sharing_;
  std::vector<std::vector<Seat>> seats_;
  simulate::TaskGraphBuilder builder_;
  std::map<int, std::size_t> links_;  // 2 * host + direction -> link
  std::vector<double> capacities_;
  std::vector<std::vector<LaneId>> lanes_;  // [replica][seat]
  Tasks first_, last_;                      // forward, backward
  std::vector<std::vector<TaskId>> update_;
  std::vector<std::vector<std::vector<TaskId>>> sums_of_;  // what each stage's update waits for
  std::vector<std::vector<double>> compute_;
  std::vector<std::vector<std::int64_t>> in_flight_;
  std::vector<std::vector<Bytes>> peaks_;               // [replica][seat]
  std::vector<std::vector<std::vector<TaskId>>> tied_;  // of each stage: what precedes its sums
  std::vector<ReplicaCosts> priced_;
  std::vector<TaskId> all_sums_;
  std::vector<std::vector<LaneId>> sum_lanes_;  // [replica][stage]
  /// Hosts, units, bytes.
  using MessageKey = std::tuple<int, int, std::size_t, std::size_t, std::int64_t>;
  static MessageKey key_of(const Seat& from, const Seat& to, Bytes bytes) {
    return {from.host, to.host, from.stage->unit, to.stage->unit, bytes.value};
  }
  std::map<MessageKey, simulate::TransferId> messages_;
  std::map<MessageKey, double> message_times_;
};

Result<double> StepGraph::message_time(const Seat& from, const Seat& to, Bytes bytes) {
  const MessageKey key = key_of(from, to, bytes);
  if (const auto known = message_times_.find(key); known != message_times_.end())
    return known->second;
  const HopReach reach = from.host == to.host ? HopReach::kSameHost : HopReach::kOtherHost;
  const auto hop = find_hop(costs(), *from.unit, *to.unit, reach, bytes);
  if (!hop) return no_link(costs(), from, to);
  const double time = hop->delay.value + static_cast<double>(bytes.value) / hop->rate.value;
  message_times_.emplace(key, time);
  return time;
}

Result<simulate::TransferId> StepGraph::message(const Seat& from, const Seat& to, Bytes bytes) {
  const MessageKey key = key_of(from, to, bytes);
  if (const auto known = messages_.find(key); known != messages_.end()) return known->second;
  const auto hop = find_hop(costs(), *from.unit, *to.unit, HopReach::kOtherHost, bytes);
  if (!hop) return no_link(costs(), from, to);
  const cost::Flow flow{static_cast<double>(bytes.value),
                        {{link(from, 0), 1.0}, {link(to, 1), 1.0}},
                        hop->rate.value};
  const simulate::TransferId id = builder_.add_transfer({{{hop->delay, {flow}}}});
  messages_.emplace(key, id);
  return id;
}

Result<TaskId> StepGraph::add_message(LaneId lane, const Seat& from, const Seat& to, Bytes bytes) {
  if (from.host != to.host && sharing_ == LinkSharing::kShared) {
    MOTLEY_ASSIGN(const simulate::TransferId transfer, message(from, to, bytes));
    return builder_.add(lane, transfer);
  }
  MOTLEY_ASSIGN(const double seconds, message_time(from, to, bytes));
  return builder_.add(lane, in_nanoseconds(seconds));
}

Result<ReplicaCosts> StepGraph::price_replica(std::size_t r) {
  const StageReplica& replica = plan_.replicas[r];
  ReplicaCosts priced;
  priced.sizes = micro_batch_sizes(replica);
  const std::int64_t largest = *std::max_element(priced.sizes.begin(), priced.sizes.end());
  const auto count = static_cast<std::int64_t>(priced.sizes.size());
  for (std::size_t s = 0; s < replica.stages.size(); ++s) {
    const PlannedStage& stage = replica.stages[s];
    auto& forward = priced.work.forward.emplace_back();
    auto& backward = priced.work.backward.emplace_back();
    for (const std::int64_t size : priced.sizes) {
      const WorkSums& sums = sums_.work(stage.unit, size);
      forward.push_back(sums.forward[stage.end] - sums.forward[stage.first]);
      backward.push_back(sums.backward[stage.end] - sums.backward[stage.first]);
    }
    const WorkSums& sums = sums_.work(stage.unit, largest);
    priced.update.push_back(sums.update[stage.end] - sums.update[stage.first]);
    priced.work.most_in_flight.push_back(
        std::max(sums_.most_in_flight(stage.unit, stage.first, stage.end, largest, count),
                 static_cast<std::int64_t>(replica.stages.size() - s)));
    priced.work.seats.push_back(seat_of(r, s));
    if (s + 1 == replica.stages.size()) continue;
    if (seat_of(r, s) == seat_of(r, s + 1)) {
      priced.work.activation.push_back(0);
      priced.work.gradient.push_back(0);
      continue;
    }
    const Bytes bytes = sums_.output(stage.unit, stage.end) * largest;
    MOTLEY_ASSIGN(const double out, message_time(seats_[r][s], seats_[r][s + 1], bytes));
    MOTLEY_ASSIGN(const double back, message_time(seats_[r][s + 1], seats_[r][s], bytes));
    priced.work.activation.push_back(out);
    priced.work.gradient.push_back(back);
  }
  if (is_interleaved(replica)) set_most_in_flight(replica, largest, priced.work);
  return priced;
}

/// What devices hold of all their stages, but for samples under way: weights that two of them share
/// once.
StageBytes StepGraph::seat_bytes(const StageReplica& replica,
                                 const std::vector<std::size_t>& stages) const {
  StageBytes sum;
  std::size_t holders = 0;
  for (const std::size_t s : stages) {
    const PlannedStage& stage = replica.stages[s];
    const StageBytes bytes = sums_.bytes(stage.unit, stage.first, stage.end);
    sum.fixed += bytes.fixed - costs().held(stage.unit).value;
    sum.workspace = std::max(sum.workspace, bytes.workspace);
    if (const auto tied = costs().tied())
      holders += (stage.first <= tied->first && tied->first < stage.end) ||
                 (stage.first <= tied->second && tied->second < stage.end);
  }
  const std::size_t unit = replica.stages[stages.front()].unit;
  sum.fixed += costs().held(unit).value;
  if (holders == 2) sum.fixed -= costs().bytes(unit)[costs().tied()->second].states.value;
  return sum;
}

/// Of stages that share devices: all micro-batches, and as many fewer as memory says, first of
/// those that have most beside what 1F1B has of them.
void StepGraph::set_most_in_flight(const StageReplica& replica, std::int64_t largest,
                                   plan::PipelineWork& work) const {
  for (const std::vector<std::size_t>& stages : stages_by_seat(replica)) {
    const StageBytes held = seat_bytes(replica, stages);
    std::int64_t left =
        sums_.memory(replica.stages[stages.front()].unit).value - held.total(largest, 0);
    for (const std::size_t s : stages) {
      work.most_in_flight[s] = work.micro_batches();
      left -= largest * kept(replica.stages[s]) * work.micro_batches();
    }
    while (left < 0) {
      std::size_t most = stages.front();
      const auto part = [&](std::size_t s) {
        return static_cast<double>(work.most_in_flight[s] - 1) /
               static_cast<double>(replica.stages.size() - s);
      };
      for (const std::size_t s : stages)
        if (part(s) > part(most)) most = s;
      if (work.most_in_flight[most] == 1) break;
      --work.most_in_flight[most];
      left += largest * kept(replica.stages[most]);
    }
  }
}

/// What the devices of some stages hold at once, as they do their passes in an order.
Bytes StepGraph::peak(const StageReplica& replica, std::int64_t largest,
                      const std::vector<std::size_t>& stages, const plan::PassOrder& order) const {
  std::vector<std::int64_t> each(replica.stages.size(), 0);
  for (const std::size_t s : stages) each[s] = kept(replica.stages[s]);
  std::int64_t now = 0, most = 0;
  for (const plan::StagePass& pass : order) {
    const std::int64_t bytes = each[static_cast<std::size_t>(pass.stage)];
    now += pass.is_backward ? -bytes : bytes;
    most = std::max(most, now);
  }
  return Bytes(seat_bytes(replica, stages).total(largest, 0) + largest * most);
}

void StepGraph::add_ends(const std::vector<std::vector<Seconds>>& last) {
  for (std::size_t r = 0; r < plan_.replicas.size(); ++r) {
    const StageReplica& replica = plan_.replicas[r];
    begin_replica(replica);
    ReplicaCosts& priced = priced_.emplace_back();
    for (std::size_t s = 0; s < replica.stages.size(); ++s) {
      const PlannedStage& stage = replica.stages[s];
      last_[r][s] = builder_.add(lane_of(r, s), in_nanoseconds(last[r][s].value));
      const WorkSums& sums = sums_.work(stage.unit, replica.micro_batch);
      priced.update.push_back(sums.update[stage.end] - sums.update[stage.first]);
    }
  }
}

Seconds StepGraph::end() {
  builder_.set_links(capacities_);
  const auto times = simulate::find_times(std::move(builder_).build());
  MOTLEY_CHECK(times.has_value());
  return Seconds(in_seconds(times->end));
}

void StepGraph::begin_replica(const StageReplica& replica) {
  const std::size_t stages = replica.stages.size();
  lanes_.emplace_back();
  for (const std::size_t seat : find_seats(replica))
    if (seat == lanes_.back().size()) lanes_.back().push_back(builder_.add_lane());
  first_.emplace_back(stages);
  last_.emplace_back(stages);
  compute_.emplace_back();
  in_flight_.emplace_back();
  sums_of_.emplace_back(stages);
  tied_.emplace_back(stages);
}

Result<void> StepGraph::add_replica(std::size_t r) {
  const StageReplica& replica = plan_.replicas[r];
  MOTLEY_ASSIGN(const ReplicaCosts priced, price_replica(r));
  const bool blocks = costs().messages_block();
  // What is ready depends on who stands still: no order is listed then.
  const bool is_listed =
      replica.schedule == StageSchedule::kList || replica.schedule == StageSchedule::kDeepList;
  if (blocks && is_interleaved(replica))
    return usage_error("search.stages",
                       fmt::format("replica {}: stages that share devices, where messages stop "
                                   "both stages until they have passed",
                                   r));
  const std::vector<plan::PassOrder> orders = plan::order_passes(
      priced.work, blocks && is_listed ? StageSchedule::k1F1B : replica.schedule);
  begin_replica(replica);
  const std::int64_t largest = *std::max_element(priced.sizes.begin(), priced.sizes.end());
  const std::vector<std::vector<std::size_t>> by_seat = stages_by_seat(replica);
  peaks_.emplace_back();
  for (std::size_t seat = 0; seat < by_seat.size(); ++seat)
    peaks_.back().push_back(peak(replica, largest, by_seat[seat], orders[seat]));
  for (std::size_t s = 0; s < replica.stages.size(); ++s) {
    double sum = priced.update[s];
    for (const double time : priced.work.forward[s]) sum += time;
    for (const double time : priced.work.backward[s]) sum += time;
    compute_.back().push_back(sum);
    in_flight_.back().push_back(plan::in_flight(orders[seat_of(r, s)], s));
  }
  priced_.push_back(priced);
  return blocks ? add_blocking(r, priced, orders) : add_overlapping(r, priced, orders);
}

Result<void> StepGraph::add_overlapping(std::size_t r, const ReplicaCosts& priced,
                                        const std::vector<plan::PassOrder>& orders) {
  const StageReplica& replica = plan_.replicas[r];
  const std::size_t stages = replica.stages.size(), count = priced.sizes.size();
  Tasks forward(stages), backward(stages);
  for (std::size_t s = 0; s < stages; ++s) {
    forward[s].resize(count);
    backward[s].resize(count);
  }
  for (std::size_t seat = 0; seat < orders.size(); ++seat)
    for (const plan::StagePass& pass : orders[seat]) {
      const auto s = static_cast<std::size_t>(pass.stage);
      const auto micro = static_cast<std::size_t>(pass.micro);
      const double time = (pass.is_backward ? priced.work.backward : priced.work.forward)[s][micro];
      (pass.is_backward ? backward : forward)[s][micro] =
          builder_.add(lanes_[r][seat], in_nanoseconds(time));
    }
  for (std::size_t s = 0; s < stages; ++s) {
    first_[r][s] = forward[s].front();
    last_[r][s] = backward[s].back();
  }
  for (std::size_t s = 0; s + 1 < stages; ++s) {
    if (seat_of(r, s) == seat_of(r, s + 1)) {
      for (std::size_t micro = 0; micro < count; ++micro) {
        builder_.depend(forward[s + 1][micro], forward[s][micro]);
        builder_.depend(backward[s][micro], backward[s + 1][micro]);
      }
      continue;
    }
    const LaneId out = builder_.add_lane(), back = builder_.add_lane();
    for (std::size_t micro = 0; micro < count; ++micro) {
      const Bytes bytes =
          sums_.output(replica.stages[s].unit, replica.stages[s].end) * priced.sizes[micro];
      MOTLEY_ASSIGN(const TaskId activation,
                    add_message(out, seats_[r][s], seats_[r][s + 1], bytes));
      builder_.depend(activation, forward[s][micro]);
      builder_.depend(forward[s + 1][micro], activation);
      MOTLEY_ASSIGN(const TaskId gradient,
                    add_message(back, seats_[r][s + 1], seats_[r][s], bytes));
      builder_.depend(gradient, backward[s + 1][micro]);
      builder_.depend(backward[s][micro], gradient);
    }
  }
  return {};
}

Result<void> StepGraph::add_blocking(std::size_t r, const ReplicaCosts& priced,
                                     const std::vector<plan::PassOrder>& orders) {
  const StageReplica& replica = plan_.replicas[r];
  const std::size_t stages = replica.stages.size();
  // A message is one task in the lanes of both stages; the first of them to come to it adds it.
  std::map<std::tuple<std::size_t, bool, std::int32_t>, TaskId> messages;
  for (std::size_t s = 0; s < stages; ++s) {
    const plan::PassOrder none;
    bool has_begun = false;
    for (const auto& [pass, is_message, edge] :
         with_messages(s, orders[s], s + 1 < stages ? orders[s + 1] : none)) {
      const auto micro = static_cast<std::size_t>(pass.micro);
      if (!is_message) {
        const double time =
            (pass.is_backward ? priced.work.backward : priced.work.forward)[s][micro];
        const TaskId task = builder_.add(lanes_[r][s], in_nanoseconds(time));
        if (!has_begun) first_[r][s] = task;
        has_begun = true;
        last_[r][s] = task;
        continue;
      }
      const auto [at, is_new] = messages.emplace(std::tuple(edge, pass.is_backward, pass.micro), 0);
      if (!is_new) {
        builder_.join(at->second, lanes_[r][s]);
        continue;
      }
      const Bytes bytes =
          sums_.output(replica.stages[edge].unit, replica.stages[edge].end) * priced.sizes[micro];
      const std::size_t from = pass.is_backward ? edge + 1 : edge;
      MOTLEY_ASSIGN(at->second, add_message(lanes_[r][s], seats_[r][from],
                                            seats_[r][2 * edge + 1 - from], bytes));
    }
  }
  return {};
}

/// All-reduce of `bytes`, which each member's unit holds, along the members host by host. Devices
/// sum what they have the same part of; one that has the parts of several others does one after the
/// other with each. So as many exchange at once as the narrowest unit has devices.
Result<cost::Transfer> StepGraph::ring(const std::vector<Seat>& seats, double bytes) {
  struct Host {
    Seat seat;
    int devices = 0, members = 0;
  };
  std::vector<Host> hosts;
  int degree = seats.front().unit->degree();
  for (const Seat& seat : seats) degree = std::min(degree, seat.unit->degree());
  for (const Seat& seat : seats) {
    const auto known = std::find_if(hosts.begin(), hosts.end(), [&](const Host& host) {
      return host.seat.host == seat.host && host.seat.unit->is_like(*seat.unit);
    });
    Host& host = known == hosts.end() ? hosts.emplace_back(Host{seat}) : *known;
    host.devices += degree;
    ++host.members;
  }
  const auto count = static_cast<double>(seats.size());
  const double moved = 2 * (count - 1) / count * bytes;
  cost::Flow flow{moved, {}, 0};
  // A message goes from one to all, and back, in as many steps as doublings make them.
  const double steps = 2 * std::ceil(std::log2(count));
  Seconds delay;
  double slowest = INFINITY, local = INFINITY;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const Host &from = hosts[i], &to = hosts[(i + 1) % hosts.size()];
    const bool stays = from.seat.host == to.seat.host;
    const HopReach reach = stays ? HopReach::kSameHost : HopReach::kOtherHost;
    const int parts = std::min(from.members, to.members);
    const Bytes chunk(std::max<std::int64_t>(1, std::llround(bytes / count * parts)));
    const auto hop = find_hop(costs(), {*from.seat.unit, from.devices}, {*to.seat.unit, to.devices},
                              reach, chunk);
    if (!hop) return no_link(costs(), from.seat, to.seat);
    (stays ? local : slowest) = std::min(stays ? local : slowest, hop->rate.value);
    delay = std::max(delay, hop->delay * steps);
    if (stays) continue;
    flow.uses.push_back({link(from.seat, 0), 1.0});
    flow.uses.push_back({link(to.seat, 1), 1.0});
  }
  // Inside one host all members send a part in each round: the rate is that of all of them.
  if (flow.uses.empty()) return cost::Transfer{{{delay + Seconds(count * moved / local), {}}}};
  flow.most_rate = std::min(slowest, local);
  cost::merge_uses(flow);
  return cost::Transfer{{{delay, {flow}}}};
}

Result<std::optional<StepGraph::Sum>> StepGraph::find_sum(std::vector<Place> members,
                                                          std::size_t first, std::size_t end) {
  std::vector<Seat> seats;
  double bytes = 0;
  for (const auto& [r, s] : members) {
    seats.push_back(seats_[r][s]);
    const PlannedStage& stage = *seats.back().stage;
    // A layer whose weights are another's of this stage exchanges nothing.
    std::int64_t own = sums_.gradients(stage.unit, first, end);
    if (const auto tied = costs().tied(); tied && stage.first <= tied->first &&
                                          tied->second < stage.end && first <= tied->second &&
                                          tied->second < end && tied->first < first)
      own -= sums_.gradients(stage.unit, tied->second, tied->second + 1);
    bytes = std::max(bytes, static_cast<double>(own));
  }
  sort_by_host(seats);
  if (bytes <= 0) return std::optional<Sum>();
  Sum sum{std::move(members)};
  MOTLEY_ASSIGN(sum.transfer, ring(seats, bytes));
  for (const cost::TransferPhase& phase : sum.transfer.phases) {
    sum.takes += phase.delay.value;
    for (const cost::Flow& flow : phase.flows) sum.takes += flow.bytes / flow.most_rate;
  }
  return std::optional<Sum>(std::move(sum));
}

/// A stage does one sum after the other, all members of one at once. The one that can begin first
/// does, of equals that of the later layers, which are there first: in one order of the layers
/// stages that are cut differently would wait for each other in a chain.
void StepGraph::order(std::vector<Sum>& sums) const {
  std::vector<std::vector<double>> free;
  for (const std::vector<Seat>& replica : seats_) free.emplace_back(replica.size(), 0.0);
  const auto earliest = [&](std::size_t number) {
    double time = 0;
    for (const auto& [r, s] : sums[number].members) time = std::max(time, free[r][s]);
    return time;
  };
  std::set<std::pair<double, std::size_t>> left;
  for (std::size_t i = 0; i < sums.size(); ++i) left.emplace(0.0, i);
  std::vector<Sum> ordered;
  while (!left.empty()) {
    const auto [noted, number] = *left.begin();
    left.erase(left.begin());
    if (const double time = earliest(number); time > noted) {
      left.emplace(time, number);
      continue;
    }
    for (const auto& [r, s] : sums[number].members) free[r][s] = noted + sums[number].takes;
    ordered.push_back(std::move(sums[number]));
  }
  sums = std::move(ordered);
}

void StepGraph::add_sum(Sum sum) {
  const TaskId task =
      builder_.add(sum_lane(sum.members.front()), builder_.add_transfer(std::move(sum.transfer)));
  all_sums_.push_back(task);
  for (const auto& [r, s] : sum.members) {
    if (std::pair(r, s) != sum.members.front()) builder_.join(task, sum_lane({r, s}));
    builder_.depend(task, last_[r][s]);
    for (const TaskId before : tied_[r][s]) builder_.depend(task, before);
    sums_of_[r][s].push_back(task);
  }
}

Result<void> StepGraph::add_tied() {
  const auto tied = costs().tied();
  if (!tied) return {};
  for (std::size_t r = 0; r < seats_.size(); ++r) {
    std::vector<std::size_t> holders;
    for (std::size_t s = 0; s < seats_[r].size(); ++s) {
      const PlannedStage& stage = *seats_[r][s].stage;
      for (const std::size_t layer : {tied->first, tied->second})
        if (stage.first <= layer && layer < stage.end) holders.push_back(s);
    }
    if (holders.size() < 2 || seat_of(r, holders[0]) == seat_of(r, holders[1])) continue;
    const std::size_t layer = tied->second;
    const double bytes =
        static_cast<double>(sums_.gradients(seats_[r][holders[1]].stage->unit, layer, layer + 1));
    MOTLEY_ASSIGN(cost::Transfer transfer,
                  ring({seats_[r][holders[0]], seats_[r][holders[1]]}, bytes));
    const TaskId sum =
        builder_.add(builder_.add_lane(), builder_.add_transfer(std::move(transfer)));
    all_sums_.push_back(sum);
    for (const std::size_t s : holders) {
      builder_.depend(sum, last_[r][s]);
      tied_[r][s].push_back(sum);
      sums_of_[r][s].push_back(sum);
    }
  }
  return {};
}

Result<void> StepGraph::add_exchanges() {
  MOTLEY_RETURN_IF_ERROR(add_tied());
  if (plan_.replicas.size() < 2) return {};
  std::set<std::size_t> cuts;
  for (const StageReplica& replica : plan_.replicas)
    for (const PlannedStage& stage : replica.stages) cuts.insert(stage.first);
  cuts.insert(costs().layers());
  for (const std::vector<Seat>& replica : seats_) {
    std::vector<LaneId>& lanes = sum_lanes_.emplace_back();
    for (std::size_t s = 0; s < replica.size(); ++s) lanes.push_back(builder_.add_lane());
  }
  std::vector<Sum> sums;
  std::vector<std::size_t> next(plan_.replicas.size());
  for (auto at = cuts.begin(); std::next(at) != cuts.end(); ++at) {
    std::vector<Place> members;
    for (std::size_t r = 0; r < plan_.replicas.size(); ++r) {
      while (plan_.replicas[r].stages[next[r]].end <= *at) ++next[r];
      members.emplace_back(r, next[r]);
    }
    MOTLEY_ASSIGN(auto sum, find_sum(std::move(members), *at, *std::next(at)));
    if (sum) sums.push_back(std::move(*sum));
  }
  std::reverse(sums.begin(), sums.end());
  order(sums);
  for (Sum& sum : sums) add_sum(std::move(sum));
  return {};
}

void StepGraph::add_updates() {
  for (std::size_t r = 0; r < seats_.size(); ++r) {
    update_.emplace_back();
    for (std::size_t s = 0; s < seats_[r].size(); ++s) {
      const TaskId update = builder_.add(lane_of(r, s), in_nanoseconds(priced_[r].update[s]));
      for (const TaskId sum : sums_of_[r][s]) builder_.depend(update, sum);
      update_.back().push_back(update);
    }
  }
}

Result<Seconds> StepGraph::first_exchange() {
  std::size_t end = costs().layers();
  std::int64_t bytes = 0;
  std::vector<Seat> seats;
  for (const std::vector<Seat>& replica : seats_) {
    seats.push_back(replica.front());
    end = std::min(end, replica.front().stage->end);
  }
  sort_by_host(seats);
  for (const Seat& seat : seats) bytes = std::max(bytes, sums_.gradients(seat.stage->unit, 0, end));
  if (seats.size() < 2 || bytes == 0) return Seconds(0);
  MOTLEY_ASSIGN(const cost::Transfer transfer, ring(seats, static_cast<double>(bytes)));
  Seconds sum;
  for (const cost::TransferPhase& phase : transfer.phases) {
    sum += phase.delay;
    for (const cost::Flow& flow : phase.flows) sum += Seconds(flow.bytes / flow.most_rate);
  }
  return sum;
}

StagePrice StepGraph::run() {
  builder_.set_links(capacities_);
  const auto times = simulate::find_times(std::move(builder_).build());
  MOTLEY_CHECK(times.has_value());  // all stages take micro-batches in one order
  StagePrice price;
  price.step = Seconds(in_seconds(times->end));
  double computed = 0, summed = 0;
  for (const TaskId sum : all_sums_)
    summed = std::max(summed, in_seconds(times->ends[sum.index()]));
  for (std::size_t r = 0; r < seats_.size(); ++r) {
    price.spans.emplace_back();
    for (std::size_t s = 0; s < seats_[r].size(); ++s) {
      const PlannedStage& stage = *seats_[r][s].stage;
      StageSpan span;
      span.compute = Seconds(compute_[r][s]);
      span.first = Seconds(in_seconds(times->begins[first_[r][s].index()]));
      span.last = Seconds(in_seconds(times->ends[last_[r][s].index()]));
      if (!update_.empty()) span.end = Seconds(in_seconds(times->ends[update_[r][s].index()]));
      span.in_flight = in_flight_[r][s];
      span.peak = peaks_[r][seat_of(r, s)];
      price.peak = std::max(price.peak, span.peak);
      price.fits = price.fits && span.peak <= sums_.memory(stage.unit);
      computed = std::max(computed, span.last.value);
      price.spans.back().push_back(span);
    }
  }
  price.exchange = Seconds(std::max(0.0, summed - computed));
  return price;
}

}  // namespace

Result<StagePrice> StageEvaluator::price(const StagePlan& plan) const {
  MOTLEY_RETURN_IF_ERROR(verify_stage_plan(plan, sums_->costs()));
  std::int64_t passes = 0;
  for (const StageReplica& replica : plan.replicas) passes += count_passes(replica);
  if (passes > kMostPasses)
    return usage_error("search.stages", fmt::format("{} passes of micro-batches in a step, at most "
                                                    "{} are simulated",
                                                    passes, kMostPasses));
  StepGraph graph(*sums_, plan, LinkSharing::kShared);
  MOTLEY_RETURN_IF_ERROR(graph.add_pipelines());
  MOTLEY_RETURN_IF_ERROR(graph.add_exchanges());
  graph.add_updates();
  return graph.run();
}

Result<StagePrice> StageEvaluator::run_alone(const StageReplica& replica) const {
  const StagePlan plan{{replica}};
  StepGraph graph(*sums_, plan, LinkSharing::kAlone);
  MOTLEY_RETURN_IF_ERROR(graph.add_pipelines());
  return graph.run();
}

Result<Seconds> StageEvaluator::pipeline(const StageReplica& replica) const {
  MOTLEY_ASSIGN(const StagePrice price, run_alone(replica));
  return price.step;
}

Result<Seconds> StageEvaluator::end_after(const StagePlan& plan,
                                          const std::vector<std::vector<Seconds>>& last) const {
  StepGraph graph(*sums_, plan, LinkSharing::kShared);
  graph.add_ends(last);
  MOTLEY_RETURN_IF_ERROR(graph.add_exchanges());
  graph.add_updates();
  return graph.end();
}

Result<Seconds> StageEvaluator::first_exchange(const StagePlan& plan) const {
  return StepGraph(*sums_, plan, LinkSharing::kAlone).first_exchange();
}

Result<Seconds> StageEvaluator::least_step(const StagePlan& plan,
                                           const std::vector<Seconds>& alone) const {
  MOTLEY_ASSIGN(const Seconds exchange, first_exchange(plan));
  Seconds end, step;
  for (const Seconds each : alone) end = std::max(end, each);
  for (const StageReplica& replica : plan.replicas) {
    const PlannedStage& stage = replica.stages.front();
    const WorkSums& work = sums_->work(stage.unit, replica.micro_batch);
    step = std::max(step, end + exchange + Seconds(work.update[stage.end]));
  }
  return step;
}

Result<Seconds> StageEvaluator::choose_schedule(StageReplica& replica) const {
  std::optional<Seconds> best;
  StageReplica chosen = replica;
  const auto tried_schedules = is_interleaved(replica)
                                   ? std::span<const StageSchedule>(kInterleavedSchedules)
                                   : std::span<const StageSchedule>(kTriedSchedules);
  for (const StageSchedule schedule : tried_schedules) {
    StageReplica tried = replica;
    tried.schedule = schedule;
    MOTLEY_ASSIGN(const Seconds time, pipeline(tried));
    if (best && time >= *best) continue;
    best = time;
    chosen = tried;
  }
  replica = chosen;
  return *best;
}

}  // namespace motley::search
