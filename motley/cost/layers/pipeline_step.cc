#include "motley/cost/layers/pipeline_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "motley/base/check.h"

namespace motley::cost {
namespace {

constexpr std::int64_t kMostMicroBatches = 1'000'000;  // a step

tl::unexpected<Error> pipeline_fault(const std::string& message) {
  return usage_error("cost.pipeline", message);
}

// ---- The pipeline of one replica.

enum class Kind { kForward, kBackward, kActivation, kGradient };

/// An operation of a stage: compute, or a message over an edge (edge e joins stages e and e+1).
struct Op {
  Kind kind;
  std::int64_t micro;
  std::size_t edge = 0;
  bool operator==(const Op&) const = default;
};

std::int64_t forwards_ahead(std::size_t stages, std::size_t stage, std::int64_t micro_batches,
                            PipelineSchedule schedule) {
  if (schedule == PipelineSchedule::kGPipe) return micro_batches;
  return std::min(static_cast<std::int64_t>(stages - 1 - stage), micro_batches);
}

std::vector<Op> compute_order(std::int64_t ahead, std::int64_t micro_batches) {
  std::vector<Op> order;
  for (std::int64_t m = 0; m < ahead; ++m) order.push_back({Kind::kForward, m});
  for (std::int64_t m = ahead; m < micro_batches; ++m) {
    order.push_back({Kind::kForward, m});
    order.push_back({Kind::kBackward, m - ahead});
  }
  for (std::int64_t m = micro_batches - ahead; m < micro_batches; ++m)
    order.push_back({Kind::kBackward, m});
  return order;
}

/// A stage's operations with its messages. `next`: compute order of the next stage, which both ends
/// of their edge follow; empty for the last. A stage takes part in a message only when it must, so
/// nobody waits in a circle.
std::vector<Op> with_messages(std::size_t stage, const std::vector<Op>& order,
                              const std::vector<Op>& next) {
  std::vector<Op> all;
  std::size_t passed = 0;      // messages to and from the next stage
  std::int64_t gradients = 0;  // of them
  const auto exchange_up_to = [&](Kind kind, std::int64_t micro) {
    while (true) {
      const Op& op = next[passed++];
      const bool is_gradient = op.kind == Kind::kBackward;
      const Kind message = is_gradient ? Kind::kGradient : Kind::kActivation;
      if (is_gradient) ++gradients;
      all.push_back({message, op.micro, stage});
      if (message == kind && op.micro == micro) return;
    }
  };
  for (const Op& op : order) {
    const bool is_forward = op.kind == Kind::kForward;
    if (is_forward && stage > 0) all.push_back({Kind::kActivation, op.micro, stage - 1});
    if (!is_forward && !next.empty() && op.micro >= gradients)
      exchange_up_to(Kind::kGradient, op.micro);
    all.push_back(op);
    if (!is_forward && stage > 0) all.push_back({Kind::kGradient, op.micro, stage - 1});
    if (is_forward && !next.empty()) exchange_up_to(Kind::kActivation, op.micro);
  }
  return all;
}

std::vector<std::vector<Op>> schedule_stages(std::size_t stages, std::int64_t micro_batches,
                                             PipelineSchedule schedule) {
  std::vector<std::vector<Op>> orders, all;
  for (std::size_t s = 0; s < stages; ++s)
    orders.push_back(
        compute_order(forwards_ahead(stages, s, micro_batches, schedule), micro_batches));
  for (std::size_t s = 0; s < stages; ++s)
    all.push_back(with_messages(s, orders[s], s + 1 < stages ? orders[s + 1] : std::vector<Op>{}));
  return all;
}

/// Where a stage is in its list of operations.
struct Progress {
  std::size_t done = 0;
  bool has_begun = false;
  StageSpan span;  // `end`: now
};

void compute(const StageWork& work, Kind kind, Progress& at) {
  if (!at.has_begun) at.span.fill = at.span.end - at.span.transfer;
  at.has_begun = true;
  const Seconds time = kind == Kind::kForward ? work.forward : work.backward;
  at.span.end += time;
  at.span.compute += time;
  ++at.done;
}

void exchange(const LinkTime& link, Kind kind, Progress& one, Progress& other) {
  const Seconds time = kind == Kind::kActivation ? link.activation : link.gradient;
  const Seconds end = std::max(one.span.end, other.span.end) + time;
  for (Progress* at : {&one, &other}) {
    at->span.end = end;
    at->span.transfer += time;
    ++at->done;
  }
}

// ---- Messages and exchanges.

/// The curve of the most devices, up to `devices`.
Result<std::pair<int, RateCurve>> find_curve(const RateCurves& curves, int devices,
                                             const std::string& what) {
  const auto above = curves.upper_bound(devices);
  if (above == curves.begin()) return pipeline_fault(fmt::format("no rate {}", what));
  return *std::prev(above);
}

struct Place {
  std::string kind;
  int host = 0;  // among those of the kind
};

/// A plan with what is looked up once.
struct Priced {
  const PipelinePlan& plan;
  const LayerProfile& profile;
  const StageNetwork& network;
  const PipelineConstants& constants;
  std::vector<std::vector<Place>> places;  // [stage][replica]
  std::map<int, std::vector<LayerSize>> sizes;
  std::map<std::pair<std::string, int>, std::vector<LayerTime>> times;

  std::size_t replicas() const { return plan.stages[0].replicas.size(); }
  const std::vector<LayerSize>& sizes_of(const StageGroup& group) const {
    return sizes.at(group.tensor_parallel);
  }
  int devices_per_host(const std::string& kind) const {
    const auto found = network.devices_per_host.find(kind);
    return found == network.devices_per_host.end() ? 1 : found->second;
  }
};

std::vector<std::vector<Place>> place_groups(const Priced& priced) {
  std::map<std::string, int> used;
  std::vector<std::vector<Place>> places;
  for (const PipelineStage& stage : priced.plan.stages) {
    places.emplace_back();
    for (const auto& [kind, degree] : stage.replicas) {
      places.back().push_back({kind, used[kind] / priced.devices_per_host(kind)});
      used[kind] += degree;
    }
  }
  return places;
}

/// Devices of a stage that sit on one host of a kind.
int devices_on_host(const Priced& priced, const PipelineStage& stage, const std::string& kind) {
  int devices = 0;
  for (const StageGroup& group : stage.replicas)
    if (group.kind == kind) devices += group.tensor_parallel;
  return std::min(devices, priced.devices_per_host(kind));
}

/// A message of `bytes` by each device of a group while all devices of its host send; `members` of
/// them belong to the same ring and pass its message on together.
Result<Seconds> message_time(const Priced& priced, std::size_t stage, const Place& from,
                             const Place& to, Bytes bytes, int members) {
  const int devices = devices_on_host(priced, priced.plan.stages[stage], from.kind);
  if (from.kind == to.kind && from.host == to.host) {
    const auto inside = priced.network.inside.find(from.kind);
    const std::string what = fmt::format("inside a host of {}", from.kind);
    if (inside == priced.network.inside.end()) return pipeline_fault("no rate " + what);
    MOTLEY_ASSIGN(const auto curve, find_curve(inside->second, std::max(2 * devices, 2), what));
    return transfer_time(curve.second, bytes, curve.first / 2.0);
  }
  const auto between = priced.network.between.find({from.kind, to.kind});
  const std::string what = fmt::format("between {} and {}", from.kind, to.kind);
  if (between == priced.network.between.end()) return pipeline_fault("no rate " + what);
  MOTLEY_ASSIGN(const auto curve, find_curve(between->second, devices, what));
  return transfer_time(curve.second, bytes,
                       static_cast<double>(curve.first) / std::min(members, curve.first));
}

/// Ring all-reduce of `bytes` at each of some places; its slowest hop sets the pace.
Result<Seconds> ring_time(const Priced& priced, std::size_t stage, const std::vector<Place>& ring,
                          int members, Bytes bytes) {
  const auto n = static_cast<std::int64_t>(ring.size());
  Seconds hop;
  for (std::size_t i = 0; n > 1 && i < ring.size(); ++i) {
    MOTLEY_ASSIGN(
        const Seconds time,
        message_time(priced, stage, ring[i], ring[(i + 1) % ring.size()], bytes / n, members));
    hop = std::max(hop, time);
  }
  return 2.0 * static_cast<double>(n - 1) * hop * priced.constants.exchange_slowdown;
}

bool holds(const PipelineStage& stage, std::size_t layer) {
  return stage.first <= layer && layer < stage.end;
}

/// The layers of a stage, without one that shares another's weights there.
std::vector<LayerSize> own_sizes(const Priced& priced, const PipelineStage& stage,
                                 const StageGroup& group) {
  const std::vector<LayerSize>& all = priced.sizes.at(group.tensor_parallel);
  std::vector<LayerSize> own(all.begin() + static_cast<std::ptrdiff_t>(stage.first),
                             all.begin() + static_cast<std::ptrdiff_t>(stage.end));
  const auto& tied = priced.profile.tied;
  if (tied && holds(stage, tied->first) && holds(stage, tied->second)) {
    LayerSize& copy = own[tied->second - stage.first];
    copy.gradients = copy.states = Bytes(0);
  }
  return own;
}

Bytes gradients(const std::vector<LayerSize>& sizes) {
  Bytes sum;
  for (const LayerSize& size : sizes) sum += size.gradients;
  return sum;
}

/// All-reduce of a stage's gradients over its replicas. Replicas of fewer devices hold longer
/// shards, which they exchange one after the other.
Result<Seconds> exchange_time(const Priced& priced, std::size_t s) {
  const PipelineStage& stage = priced.plan.stages[s];
  Bytes bytes;
  int members = 1;
  for (const StageGroup& group : stage.replicas) {
    bytes = std::max(bytes, gradients(own_sizes(priced, stage, group)));
    members = std::max(members, devices_on_host(priced, stage, group.kind) / group.tensor_parallel);
  }
  return ring_time(priced, s, priced.places[s], members, bytes);
}

/// Sum of the tied weights' gradients over the two stages that hold them; 0 if one does.
Result<Seconds> tied_time(const Priced& priced, std::size_t replica) {
  const auto& tied = priced.profile.tied;
  if (!tied) return Seconds(0);
  std::vector<Place> ring;
  Bytes bytes;
  std::size_t first = 0;
  for (std::size_t s = 0; s < priced.plan.stages.size(); ++s) {
    const PipelineStage& stage = priced.plan.stages[s];
    if (!holds(stage, tied->first) && !holds(stage, tied->second)) continue;
    if (ring.empty()) first = s;
    ring.push_back(priced.places[s][replica]);
    if (holds(stage, tied->second))
      bytes = priced.sizes.at(stage.replicas[replica].tensor_parallel)[tied->second].gradients;
  }
  return ring_time(priced, first, ring, 1, bytes);
}

// ---- A plan.

/// Forward and backward of one micro-batch, and the update, of one stage of a replica.
struct StageCost {
  StageWork work;
  Seconds update;
};

StageCost stage_cost(const Priced& priced, const PipelineStage& stage, const StageGroup& group) {
  const std::vector<LayerTime>& times = priced.times.at({group.kind, group.tensor_parallel});
  StageCost cost;
  for (std::size_t i = stage.first; i < stage.end; ++i) {
    cost.work.forward += times[i].forward;
    cost.work.backward += times[i].backward;
    cost.update += times[i].update;
  }
  return cost;
}

/// What one replica's pipeline takes, before gradients are exchanged.
struct ReplicaRun {
  std::vector<StageCost> costs;
  std::vector<StageWork> work;
  std::vector<LinkTime> links;
  std::vector<StageSpan> spans;
  Seconds tied;
};

Result<LinkTime> link_time(const Priced& priced, std::size_t s, std::size_t replica) {
  const PipelineStage& stage = priced.plan.stages[s];
  const LayerSize& last = priced.sizes.at(stage.replicas[replica].tensor_parallel)[stage.end - 1];
  if (last.output.value == 0)
    return pipeline_fault(
        fmt::format("{}: the bytes that layer {} gives to the next stage are not known",
                    priced.profile.model, stage.end - 1));
  const Bytes bytes = last.output * priced.plan.micro_batch;
  const Place &here = priced.places[s][replica], &next = priced.places[s + 1][replica];
  MOTLEY_ASSIGN(const Seconds activation, message_time(priced, s, here, next, bytes, 1));
  MOTLEY_ASSIGN(const Seconds gradient, message_time(priced, s + 1, next, here, bytes, 1));
  return LinkTime{activation, gradient};
}

/// All but the spans.
Result<ReplicaRun> price_replica(const Priced& priced, std::size_t replica) {
  ReplicaRun run;
  const std::vector<PipelineStage>& stages = priced.plan.stages;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    run.costs.push_back(stage_cost(priced, stages[s], stages[s].replicas[replica]));
    run.work.push_back(run.costs.back().work);
    if (s + 1 == stages.size()) continue;
    MOTLEY_ASSIGN(const LinkTime link, link_time(priced, s, replica));
    run.links.push_back(link);
  }
  MOTLEY_ASSIGN(run.tied, tied_time(priced, replica));
  return run;
}

bool has_tied(const Priced& priced, std::size_t stage) {
  const auto& tied = priced.profile.tied;
  return tied && (holds(priced.plan.stages[stage], tied->first) ||
                  holds(priced.plan.stages[stage], tied->second));
}

/// When a replica's stage is ready to exchange its gradients: the tied ones wait for both stages.
Seconds ready(const Priced& priced, const ReplicaRun& run, std::size_t stage) {
  if (!has_tied(priced, stage)) return run.spans[stage].end;
  Seconds both;
  for (std::size_t s = 0; s < run.spans.size(); ++s)
    if (has_tied(priced, s)) both = std::max(both, run.spans[s].end);
  return both + run.tied;
}

StageTimes breakdown(const ReplicaRun& run, std::size_t stage, bool is_tied, Seconds exchange,
                     Seconds step) {
  const StageSpan& span = run.spans[stage];
  const Seconds tied = is_tied ? run.tied : Seconds(0);
  StageTimes times;
  times.compute = span.compute + run.costs[stage].update;
  times.communication = span.transfer + exchange + tied;
  const Seconds idle =
      std::max(Seconds(0), step - times.compute - times.communication);  // rounding
  const Seconds drain = step - span.end - run.costs[stage].update - exchange - tied;
  times.bubble = std::clamp(span.fill + drain, Seconds(0), idle);
  times.waiting = idle - times.bubble;
  return times;
}

/// Stays in range whatever a profile says.
Bytes times(Bytes bytes, double factor) {
  const double product = static_cast<double>(bytes.value) * factor;
  return Bytes(std::llround(std::min(product, 1e18)));
}

StageMemory stage_memory(const Priced& priced, std::size_t s, const StageGroup& group) {
  const PipelinePlan& plan = priced.plan;
  const std::vector<LayerSize> sizes = own_sizes(priced, plan.stages[s], group);
  const std::int64_t ahead =
      forwards_ahead(plan.stages.size(), s, plan.micro_batches, plan.schedule);
  const std::int64_t in_flight = std::min(ahead + 1, plan.micro_batches);
  const auto batch = static_cast<double>(plan.micro_batch);
  StageMemory memory;
  memory.context = priced.constants.context;
  memory.bucket = gradients(sizes);
  Bytes kept;
  for (const LayerSize& size : sizes) {
    memory.states += size.states;
    kept += size.kept;
    memory.workspace = std::max(memory.workspace, times(size.kept, batch));
  }
  memory.activations = times(kept, batch * static_cast<double>(in_flight));
  const Bytes used = memory.states + memory.activations + memory.workspace;
  memory.slack = Bytes(
      std::llround(static_cast<double>(used.value) * (priced.constants.allocator_overhead - 1)));
  return memory;
}

Result<void> verify_pipeline(const PipelinePlan& plan, std::size_t layers) {
  if (plan.stages.empty() || plan.micro_batch < 1 || plan.micro_batches < 1 ||
      plan.micro_batches > kMostMicroBatches)
    return pipeline_fault(
        fmt::format("{} micro-batches of {} samples in {} stages, wanted 1 to {} of 1 or "
                    "more in 1 or more",
                    plan.micro_batches, plan.micro_batch, plan.stages.size(), kMostMicroBatches));
  std::size_t next = 0;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const PipelineStage& stage = plan.stages[s];
    if (stage.first != next || stage.end <= stage.first)
      return pipeline_fault(fmt::format("stage {} has layers {} to {}, wanted a start at {}", s,
                                        stage.first, stage.end, next));
    if (stage.replicas.empty() || stage.replicas.size() != plan.stages[0].replicas.size())
      return pipeline_fault(fmt::format("stage {} has {} replicas, wanted {}", s,
                                        stage.replicas.size(),
                                        std::max<std::size_t>(plan.stages[0].replicas.size(), 1)));
    next = stage.end;
  }
  if (next != layers)
    return pipeline_fault(fmt::format("stages end at layer {}, wanted {}", next, layers));
  return {};
}

Result<Priced> look_up(const PipelinePlan& plan, const LayerProfile& profile,
                       const StageNetwork& network, const PipelineConstants& constants) {
  Priced priced{plan, profile, network, constants, {}, {}, {}};
  for (const PipelineStage& stage : plan.stages)
    for (const auto& [kind, degree] : stage.replicas) {
      std::vector<LayerTime>& times = priced.times[{kind, degree}];
      if (!times.empty()) continue;
      MOTLEY_ASSIGN(times, layer_times(profile, kind, degree, plan.micro_batch));
      MOTLEY_ASSIGN(priced.sizes[degree], layer_sizes(profile, degree));
      if (times.size() != priced.sizes[degree].size())
        return pipeline_fault(fmt::format("{} at tp {}: times of {} layers, bytes of {}",
                                          profile.model, degree, times.size(),
                                          priced.sizes[degree].size()));
      MOTLEY_RETURN_IF_ERROR(verify_pipeline(plan, times.size()));
    }
  if (priced.sizes.empty()) return pipeline_fault("no replica");
  priced.places = place_groups(priced);
  return priced;
}

/// A replica that is like an earlier one has its spans.
Result<std::vector<ReplicaRun>> run_replicas(const Priced& priced) {
  std::vector<ReplicaRun> runs;
  for (std::size_t r = 0; r < priced.replicas(); ++r) {
    MOTLEY_ASSIGN(ReplicaRun run, price_replica(priced, r));
    const auto like = std::find_if(runs.begin(), runs.end(), [&](const ReplicaRun& other) {
      return other.work == run.work && other.links == run.links;
    });
    run.spans = like != runs.end() ? like->spans
                                   : run_pipeline(run.work, run.links, priced.plan.micro_batches,
                                                  priced.plan.schedule);
    runs.push_back(std::move(run));
  }
  return runs;
}

std::size_t slowest(const Priced& priced, const std::vector<ReplicaRun>& runs, std::size_t stage) {
  std::size_t worst = 0;
  for (std::size_t r = 1; r < runs.size(); ++r)
    if (ready(priced, runs[r], stage) > ready(priced, runs[worst], stage)) worst = r;
  return worst;
}

}  // namespace

std::vector<StageSpan> run_pipeline(const std::vector<StageWork>& work,
                                    const std::vector<LinkTime>& links, std::int64_t micro_batches,
                                    PipelineSchedule schedule) {
  MOTLEY_CHECK(links.size() + 1 == work.size());
  const std::vector<std::vector<Op>> ops = schedule_stages(work.size(), micro_batches, schedule);
  std::vector<Progress> at(work.size());
  const auto next = [&](std::size_t s) {
    return at[s].done < ops[s].size() ? &ops[s][at[s].done] : nullptr;
  };
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    for (std::size_t s = 0; s < work.size(); ++s) {
      for (const Op* op = next(s); op != nullptr; op = next(s)) {
        const bool is_message = op->kind == Kind::kActivation || op->kind == Kind::kGradient;
        const std::size_t other = op->edge == s ? s + 1 : s - 1;
        if (is_message && (next(other) == nullptr || *next(other) != *op)) break;
        if (is_message)
          exchange(links[op->edge], op->kind, at[s], at[other]);
        else
          compute(work[s], op->kind, at[s]);
        has_moved = true;
      }
    }
  }
  std::vector<StageSpan> spans;
  for (std::size_t s = 0; s < work.size(); ++s) {
    MOTLEY_CHECK(next(s) == nullptr);
    spans.push_back(at[s].span);
  }
  return spans;
}

Result<PipelineStep> estimate_pipeline_step(const PipelinePlan& plan, const LayerProfile& profile,
                                            const StageNetwork& network,
                                            const PipelineConstants& constants) {
  MOTLEY_ASSIGN(const Priced priced, look_up(plan, profile, network, constants));
  MOTLEY_ASSIGN(const std::vector<ReplicaRun> runs, run_replicas(priced));
  PipelineStep result;
  std::vector<Seconds> exchanges;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    MOTLEY_ASSIGN(const Seconds exchange, exchange_time(priced, s));
    exchanges.push_back(exchange);
    Seconds begin, update;
    for (const ReplicaRun& run : runs) {
      begin = std::max(begin, ready(priced, run, s));
      update = std::max(update, run.costs[s].update);
    }
    result.step = std::max(result.step, begin + exchange + update);
  }
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const std::size_t worst = slowest(priced, runs, s);
    result.times.push_back(
        breakdown(runs[worst], s, has_tied(priced, s), exchanges[s], result.step));
    result.memory.push_back({});
    for (const StageGroup& group : plan.stages[s].replicas) {
      const StageMemory memory = stage_memory(priced, s, group);
      if (memory.total() > result.memory.back().total()) result.memory.back() = memory;
    }
    result.peak = std::max(result.peak, result.memory.back().total());
  }
  return result;
}

}  // namespace motley::cost
