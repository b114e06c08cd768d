#include "motley/search/stages/stage_evaluator.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <tuple>

#include "motley/base/check.h"
#include "motley/search/stages/gradient_sums.h"
#include "motley/search/stages/replica_passes.h"
#include "motley/search/stages/stage_transfers.h"
#include "motley/simulate/find_times.h"

namespace motley::search {
namespace {

using simulate::LaneId;
using simulate::TaskId;
using simulate::to_nanoseconds;

constexpr std::int64_t kMostPasses = 20'000'000;

Seconds in_seconds(simulate::Nanoseconds time) { return Seconds(static_cast<double>(time) * 1e-9); }

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

/// Builds one task graph of some replicas and reads its times.
class StepGraph {
 public:
  StepGraph(const StageSums& sums, const StagePlan& plan, LinkSharing sharing)
      : sums_(sums),
        plan_(plan),
        placed_(place_in_cluster(plan, sums.costs())),
        transfers_(sums.costs(), sharing) {}

  Result<void> add_pipelines();
  /// In place of pipelines: when each stage has ended its last backward.
  void add_ends(const std::vector<std::vector<Seconds>>& last);
  Result<void> add_exchanges();
  void add_updates();
  StagePrice run();
  /// Returns the end of all there is, in place of run().
  Seconds end() { return in_seconds(find_times().end); }

 private:
  struct StageTasks {
    LaneId lane;  // of its devices
    LaneId sum_lane = {};
    TaskId first = {}, last = {};  // forward, backward
    TaskId tied = {};              // precedes its other sums
    std::vector<TaskId> sums = {};
    TaskId update = {};
    double update_seconds = 0;
    StageSpan span = {};  // but for times
  };
  using Passes = std::vector<plan::PassOrder>;  // by seat

  Result<void> add_replica(std::size_t r);
  std::vector<StageTasks>& begin_replica(std::size_t r);
  void set_spans(std::size_t r, const ReplicaPasses& priced, const Passes& orders);
  Result<void> add_overlapping(std::size_t r, const ReplicaPasses& priced, const Passes& orders);
  Result<void> add_blocking(std::size_t r, const ReplicaPasses& priced, const Passes& orders);
  /// Adds the message from a stage to a neighbour, with a micro-batch's activations or gradients.
  Result<TaskId> add_message(LaneId lane, std::size_t r, std::size_t from, std::size_t to,
                             std::int64_t samples);
  TaskId add_sum(GradientSum sum, LaneId lane);
  simulate::TaskTimes find_times();

  const StageSums& sums_;
  const StagePlan& plan_;
  const PlacedStages placed_;
  StageTransfers transfers_;
  simulate::TaskGraphBuilder builder_;
  std::vector<std::vector<StageTasks>> stages_;  // [replica][stage]
};

Result<void> StepGraph::add_pipelines() {
  for (std::size_t r = 0; r < plan_.replicas.size(); ++r) MOTLEY_RETURN_IF_ERROR(add_replica(r));
  return {};
}

void StepGraph::add_ends(const std::vector<std::vector<Seconds>>& last) {
  for (std::size_t r = 0; r < plan_.replicas.size(); ++r) {
    const StageReplica& replica = plan_.replicas[r];
    std::vector<StageTasks>& stages = begin_replica(r);
    for (std::size_t s = 0; s < stages.size(); ++s) {
      stages[s].last = builder_.add(stages[s].lane, to_nanoseconds(last[r][s]));
      stages[s].update_seconds = update_seconds(sums_, replica.stages[s], replica.micro_batch);
    }
  }
}

std::vector<StepGraph::StageTasks>& StepGraph::begin_replica(std::size_t r) {
  const StageReplica& replica = plan_.replicas[r];
  std::vector<LaneId> lanes;  // by seat
  std::vector<StageTasks>& stages = stages_.emplace_back();
  for (std::size_t s = 0; s < replica.stages.size(); ++s) {
    const std::size_t seat = replica.seat_of(s);
    if (seat == lanes.size()) lanes.push_back(builder_.add_lane());
    stages.push_back({lanes[seat]});
  }
  return stages;
}

Result<void> StepGraph::add_replica(std::size_t r) {
  const StageReplica& replica = plan_.replicas[r];
  MOTLEY_ASSIGN(const ReplicaPasses priced, price_passes(sums_, replica, placed_[r], transfers_));
  const bool blocks = sums_.costs().messages_block();
  // What is ready depends on who stands still: no order is listed then.
  const bool is_listed =
      replica.schedule == StageSchedule::kList || replica.schedule == StageSchedule::kDeepList;
  if (blocks && is_interleaved(replica))
    return usage_error("search.stages",
                       fmt::format("replica {}: stages that share devices, where messages stop "
                                   "both stages until they have passed",
                                   r));
  const Passes orders = plan::order_passes(
      priced.work, blocks && is_listed ? StageSchedule::k1F1B : replica.schedule);
  begin_replica(r);
  set_spans(r, priced, orders);
  return blocks ? add_blocking(r, priced, orders) : add_overlapping(r, priced, orders);
}

void StepGraph::set_spans(std::size_t r, const ReplicaPasses& priced, const Passes& orders) {
  const StageReplica& replica = plan_.replicas[r];
  const std::vector<std::vector<std::size_t>> by_seat = stages_by_seat(replica);
  for (std::size_t seat = 0; seat < by_seat.size(); ++seat) {
    const Bytes peak = peak_of(sums_, replica, priced.largest, by_seat[seat], orders[seat]);
    for (const std::size_t s : by_seat[seat]) {
      double sum = stages_[r][s].update_seconds = priced.update[s];
      for (const double time : priced.work.forward[s]) sum += time;
      for (const double time : priced.work.backward[s]) sum += time;
      StageSpan& span = stages_[r][s].span;
      span.compute = Seconds(sum);
      span.in_flight = plan::in_flight(orders[seat], s);
      span.peak = peak;
    }
  }
}

Result<TaskId> StepGraph::add_message(LaneId lane, std::size_t r, std::size_t from, std::size_t to,
                                      std::int64_t samples) {
  const PlannedStage& sends = *placed_[r][std::min(from, to)].stage;
  return transfers_.add_message(builder_, lane, placed_[r][from], placed_[r][to],
                                sums_.output(sends.unit, sends.end) * samples);
}

Result<void> StepGraph::add_overlapping(std::size_t r, const ReplicaPasses& priced,
                                        const Passes& orders) {
  const StageReplica& replica = plan_.replicas[r];
  const std::size_t stages = replica.stages.size(), count = priced.sizes.size();
  std::vector<std::vector<TaskId>> forward(stages, std::vector<TaskId>(count));  // by micro-batch
  std::vector<std::vector<TaskId>> backward = forward;
  for (const plan::PassOrder& order : orders)
    for (const plan::StagePass& pass : order) {
      const auto s = static_cast<std::size_t>(pass.stage);
      (pass.is_backward ? backward : forward)[s][static_cast<std::size_t>(pass.micro)] =
          builder_.add(stages_[r][s].lane, to_nanoseconds(priced.time(pass)));
    }
  for (std::size_t s = 0; s < stages; ++s) {
    stages_[r][s].first = forward[s].front();
    stages_[r][s].last = backward[s].back();
  }
  for (std::size_t s = 0; s + 1 < stages; ++s) {
    if (replica.seat_of(s) == replica.seat_of(s + 1)) {
      for (std::size_t micro = 0; micro < count; ++micro) {
        builder_.depend(forward[s + 1][micro], forward[s][micro]);
        builder_.depend(backward[s][micro], backward[s + 1][micro]);
      }
      continue;
    }
    const LaneId out = builder_.add_lane(), back = builder_.add_lane();
    for (std::size_t micro = 0; micro < count; ++micro) {
      const std::int64_t size = priced.sizes[micro];
      MOTLEY_ASSIGN(const TaskId activation, add_message(out, r, s, s + 1, size));
      builder_.depend(activation, forward[s][micro]);
      builder_.depend(forward[s + 1][micro], activation);
      MOTLEY_ASSIGN(const TaskId gradient, add_message(back, r, s + 1, s, size));
      builder_.depend(gradient, backward[s + 1][micro]);
      builder_.depend(backward[s][micro], gradient);
    }
  }
  return {};
}

Result<void> StepGraph::add_blocking(std::size_t r, const ReplicaPasses& priced,
                                     const Passes& orders) {
  // A message is one task in the lanes of both stages; the first of them to come to it adds it.
  std::map<std::tuple<std::size_t, bool, std::int32_t>, TaskId> messages;
  const plan::PassOrder none;
  for (std::size_t s = 0; s < orders.size(); ++s) {
    StageTasks& stage = stages_[r][s];
    for (const auto& [pass, is_message, edge] :
         with_messages(s, orders[s], s + 1 < orders.size() ? orders[s + 1] : none)) {
      if (!is_message) {
        stage.last = builder_.add(stage.lane, to_nanoseconds(priced.time(pass)));
        if (stage.first.is_none()) stage.first = stage.last;
        continue;
      }
      const auto [at, is_new] = messages.emplace(std::tuple(edge, pass.is_backward, pass.micro), 0);
      if (!is_new) {
        builder_.join(at->second, stage.lane);
        continue;
      }
      const std::size_t from = pass.is_backward ? edge + 1 : edge;
      MOTLEY_ASSIGN(at->second, add_message(stage.lane, r, from, 2 * edge + 1 - from,
                                            priced.sizes[static_cast<std::size_t>(pass.micro)]));
    }
  }
  return {};
}

TaskId StepGraph::add_sum(GradientSum sum, LaneId lane) {
  const TaskId task = builder_.add(lane, builder_.add_transfer(std::move(sum.transfer)));
  for (const auto& [r, s] : sum.members) {
    StageTasks& stage = stages_[r][s];
    if (!stage.sum_lane.is_none() && stage.sum_lane != lane) builder_.join(task, stage.sum_lane);
    builder_.depend(task, stage.last);
    if (!stage.tied.is_none()) builder_.depend(task, stage.tied);
    stage.sums.push_back(task);
  }
  return task;
}

Result<void> StepGraph::add_exchanges() {
  MOTLEY_ASSIGN(std::vector<GradientSum> tied, find_tied_sums(sums_, plan_, placed_, transfers_));
  for (GradientSum& sum : tied) {
    const auto members = sum.members;
    const TaskId task = add_sum(std::move(sum), builder_.add_lane());
    for (const auto& [r, s] : members) stages_[r][s].tied = task;
  }
  MOTLEY_ASSIGN(std::vector<GradientSum> sums, find_replica_sums(sums_, placed_, transfers_));
  if (sums.empty()) return {};
  for (std::vector<StageTasks>& replica : stages_)
    for (StageTasks& stage : replica) stage.sum_lane = builder_.add_lane();
  for (GradientSum& sum : sums) {
    const auto& [r, s] = sum.members.front();
    const LaneId lane = stages_[r][s].sum_lane;
    add_sum(std::move(sum), lane);
  }
  return {};
}

void StepGraph::add_updates() {
  for (std::vector<StageTasks>& replica : stages_)
    for (StageTasks& stage : replica) {
      stage.update = builder_.add(stage.lane, to_nanoseconds(Seconds(stage.update_seconds)));
      for (const TaskId sum : stage.sums) builder_.depend(stage.update, sum);
    }
}

simulate::TaskTimes StepGraph::find_times() {
  builder_.set_links(transfers_.capacities());
  auto times = simulate::find_times(std::move(builder_).build());
  MOTLEY_CHECK(times.has_value());  // all stages take micro-batches in one order
  return std::move(*times);
}

StagePrice StepGraph::run() {
  const simulate::TaskTimes times = find_times();
  const auto end_of = [&](TaskId task) { return in_seconds(times.ends[task.index()]); };
  StagePrice price;
  price.step = in_seconds(times.end);
  Seconds computed, summed;
  for (std::size_t r = 0; r < stages_.size(); ++r) {
    price.spans.emplace_back();
    for (std::size_t s = 0; s < stages_[r].size(); ++s) {
      const StageTasks& stage = stages_[r][s];
      StageSpan span = stage.span;
      span.first = in_seconds(times.begins[stage.first.index()]);
      span.last = end_of(stage.last);
      if (!stage.update.is_none()) span.end = end_of(stage.update);
      for (const TaskId sum : stage.sums) summed = std::max(summed, end_of(sum));
      computed = std::max(computed, span.last);
      price.peak = std::max(price.peak, span.peak);
      price.fits = price.fits && span.peak <= sums_.memory(placed_[r][s].stage->unit);
      price.spans.back().push_back(span);
    }
  }
  price.exchange = std::max(Seconds(0), summed - computed);
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
  return first_sum(*sums_, place_in_cluster(plan, sums_->costs()));
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
