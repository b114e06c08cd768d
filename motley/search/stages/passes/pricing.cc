#include "motley/search/stages/passes/pricing.h"

#include <algorithm>
#include <utility>

#include "motley/search/stages/passes/sharing.h"

namespace motley::search {
namespace {

/// Times the fastest plan so far, from where on a second way to place a plan is not tried: it has
/// not made up for as much yet.
constexpr double kTooSlowPlaces = 1.03;
constexpr double kSmallestLayerMove = 1e-4;  // of a replica's time, that is an improvement
constexpr double kSmallestBatchGain = 1e-6;  // the same of another micro-batch: more than rounding

/// What first stages exchange in this plan over what the model thinks, as where all are in a host.
double slower_exchange(const SearchSpace& space, const StagePlan& plan) {
  double model = 0;
  for (const StageReplica& replica : plan.replicas) {
    const PlannedStage& stage = replica.stages.front();
    model = std::max(model, space.ringed.exchange(stage.unit, stage.first, stage.end));
  }
  const auto takes = space.evaluator.first_exchange(plan);
  return takes && model > 0 ? takes->value / model : 1;
}

/// As StageEvaluator::choose_schedule, but by short runs.
Result<void> choose_order(const ShapeEstimates& estimates, StageReplica& replica) {
  std::optional<std::pair<double, StageSchedule>> best;
  for (const StageSchedule schedule : kTriedSchedules) {
    replica.schedule = schedule;
    MOTLEY_ASSIGN(const double time, estimates.simulate_passes(replica));
    if (!best || time < best->first) best = {time, schedule};
  }
  replica.schedule = best->second;
  return {};
}

/// Layers between neighbours, as long as the replica alone gets faster by it; what follows its
/// passes takes `slower` times what the model says.
Result<void> move_layers(const SearchSpace& space, const ShapeEstimates& estimates,
                         StageReplica& replica, double slower) {
  MOTLEY_ASSIGN(double best, estimates.simulate_passes(replica));
  best += estimates.after_passes(shape_of(replica), slower);
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    for (std::size_t s = 0; s + 1 < replica.stages.size(); ++s)
      for (const int by : {-1, 1}) {
        StageReplica tried = replica;
        if (!move_cut(tried.stages, s, by)) continue;
        const ReplicaShape shape = shape_of(tried);
        if (!space.free.is_valid(shape)) continue;
        MOTLEY_ASSIGN(double time, estimates.simulate_passes(tried));
        time += estimates.after_passes(shape, slower);
        if (time >= best * (1 - kSmallestLayerMove)) continue;
        best = time;
        replica = tried;
        has_moved = true;
      }
  }
  return {};
}

/// Better cuts and orders of each part for what it does.
Result<void> tune_parts(const SearchSpace& space, const ShapeEstimates& estimates,
                        std::optional<double> slower, ReplicaMix& mix, MixPlan& made) {
  for (std::size_t i = 0; i < mix.parts.size(); ++i) {
    auto& [shape, count] = mix.parts[i];
    StageReplica* replicas = &made.plan.replicas[made.first_of[i]];
    const StageReplica& first = *replicas;
    MOTLEY_RETURN_IF_ERROR(choose_order(estimates, *replicas));
    if (slower) MOTLEY_RETURN_IF_ERROR(move_layers(space, estimates, *replicas, *slower));
    for (int r = 1; r < count; ++r) {
      replicas[r].schedule = first.schedule;
      for (std::size_t s = 0; s < first.stages.size(); ++s) {
        replicas[r].stages[s].first = first.stages[s].first;
        replicas[r].stages[s].end = first.stages[s].end;
      }
    }
    shape = shape_of(first);
  }
  return {};
}

}  // namespace

Result<PricedMix> price_mix(const SearchSpace& space, const ShapeEstimates& estimates,
                            ReplicaMix mix, LayerMoves moves, Seconds fastest) {
  PricedMix priced;
  MixPlan made = plan_of(mix);
  if (!place_stages(made.plan, space.costs, StagePlacing::kByStage)) return priced;
  MOTLEY_ASSIGN(std::vector<std::int64_t> samples, share_samples(space, estimates, mix, made));
  std::optional<double> slower;
  if (moves == LayerMoves::kTried && !space.question.limits.one_layer_stages)
    slower = slower_exchange(space, made.plan);
  for (std::size_t i = 0; i < mix.parts.size(); ++i)
    made.plan.replicas[made.first_of[i]].samples = std::max<std::int64_t>(1, samples[i]);
  MOTLEY_RETURN_IF_ERROR(tune_parts(space, estimates, slower, mix, made));
  MOTLEY_ASSIGN(samples, share_samples(space, estimates, mix, made));
  for (std::size_t i = 0; i < mix.parts.size(); ++i)
    for (int r = 0; r < mix.parts[i].second; ++r)
      made.plan.replicas[made.first_of[i] + static_cast<std::size_t>(r)].samples = samples[i];
  trim_samples(space, mix, made);
  for (const StagePlacing placing : {StagePlacing::kByStage, StagePlacing::kByReplica}) {
    std::optional<PricedStagePlan>& best = priced.best;
    if (best && (best->price.step > kTooSlowPlaces * fastest || !space.runs("places"))) continue;
    if (!place_stages(made.plan, space.costs, placing)) continue;
    ++priced.simulated;
    MOTLEY_ASSIGN(StagePrice price, space.evaluator.price(made.plan));
    if (price.fits && (!best || price.step < best->price.step))
      best = {made.plan, std::move(price)};
  }
  return priced;
}

ReplicaMix choose_micro_batches(const SearchSpace& space, const ShapeEstimates& estimates,
                                ReplicaMix mix) {
  const double seconds = estimates.seconds_of(mix);
  for (auto& [shape, count] : mix.parts) {
    const std::int64_t samples = estimates.expected_samples(shape, seconds);
    if (samples == 0) continue;
    ReplicaShape tried = shape;
    double least = estimates.estimate(shape, samples);
    for (const std::int64_t batch : space.costs.micro_batches()) {
      tried.micro_batch = batch;
      if (!has_full_ends(replica_of(tried, samples)) || !space.free.is_valid(tried)) continue;
      const double time = estimates.estimate(tried, samples);
      if (time >= least * (1 - kSmallestBatchGain)) continue;
      least = time;
      shape.micro_batch = batch;
    }
  }
  return mix;
}

}  // namespace motley::search
