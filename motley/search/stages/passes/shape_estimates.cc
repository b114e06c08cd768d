#include "motley/search/stages/passes/shape_estimates.h"

#include <algorithm>

#include "motley/search/stages/passes/time_bracket.h"

namespace motley::search {

double ShapeEstimates::estimate(const ReplicaShape& shape, std::int64_t samples) const {
  double once = 0, slowest = 0;
  for (std::size_t s = 0; s < shape.stages.size(); ++s) {
    const auto& [first, end, unit] = shape.stages[s];
    const double work = space_.sums.work(unit, shape.micro_batch).pass(first, end);
    slowest = std::max(slowest, work);
    once += work;
    if (s + 1 < shape.stages.size())
      once += space_.ringed.messages(unit, shape.stages[s + 1].unit, end, shape.micro_batch);
  }
  const double others = static_cast<double>(samples) / static_cast<double>(shape.micro_batch) - 1;
  return std::max(space_.ringed.seconds(shape, samples),
                  once + std::max(0.0, others) * slowest + after_passes(shape));
}

double ShapeEstimates::after_passes(const ReplicaShape& shape, double slower) const {
  const auto& [first, end, unit] = shape.stages.front();
  return space_.sums.work(unit, shape.micro_batch).update[end] +
         slower * space_.ringed.exchange(unit, first, end);
}

std::int64_t ShapeEstimates::expected_samples(const ReplicaShape& shape, double seconds) const {
  const auto known = slower_.find(shape);
  const double slower = known == slower_.end() ? 1 : known->second;
  return space_.ringed.most_samples(shape, seconds / slower, space_.question.global_batch);
}

std::int64_t ShapeEstimates::supposed_samples(const ReplicaShape& shape, double seconds) const {
  const std::int64_t does = expected_samples(shape, seconds);
  if (does == 0 || slower_.contains(shape)) return does;
  const double slower = estimate(shape, does) / space_.ringed.seconds(shape, does);
  return space_.ringed.most_samples(shape, seconds / slower, space_.question.global_batch);
}

/// Each stage in another host where there are several.
void ShapeEstimates::spread(StageReplica& replica) const {
  for (std::size_t s = 0; s < replica.stages.size(); ++s) {
    PlannedStage& stage = replica.stages[s];
    const std::size_t pool = space_.costs.units()[stage.unit].pool();
    stage.host = static_cast<int>(s) % space_.costs.pools()[pool].hosts();
  }
}

/// By its best order of passes.
Result<double> ShapeEstimates::simulate_alone(const ReplicaShape& shape,
                                              std::int64_t samples) const {
  StageReplica replica = replica_of(shape, samples);
  spread(replica);
  double best = kTooLong;
  for (const StageSchedule schedule :
       {StageSchedule::kH1F1B, StageSchedule::kWide, StageSchedule::kDeepList}) {
    replica.schedule = schedule;
    MOTLEY_ASSIGN(const double time, simulate_passes(replica));
    best = std::min(best, time);
  }
  return best + after_passes(shape);
}

Result<void> ShapeEstimates::learn(const ReplicaShape& shape, double seconds) {
  if (slower_.contains(shape)) return {};
  const std::int64_t does =
      space_.ringed.most_samples(shape, seconds, space_.question.global_batch);
  if (does == 0) return {};
  MOTLEY_ASSIGN(const double time, simulate_alone(shape, does));
  slower_[shape] = time / space_.ringed.seconds(shape, does);
  return learn_ends(shape);
}

Result<void> ShapeEstimates::learn_ends(const ReplicaShape& shape) {
  const auto micro_batches = static_cast<std::int64_t>(2 * shape.stages.size());
  StageReplica replica = replica_of(shape, micro_batches * shape.micro_batch);
  replica.schedule = StageSchedule::kH1F1B;
  spread(replica);
  MOTLEY_ASSIGN(const StagePrice price, space_.evaluator.run_alone(replica));
  for (const StageSpan& span : price.spans.front())
    after_stage_[shape].push_back((price.step - span.last).value);
  return {};
}

Result<double> ShapeEstimates::simulate_passes(StageReplica replica) const {
  const auto stages = static_cast<std::int64_t>(replica.stages.size());
  const std::int64_t some = 2 * stages + 4, more = 3 * stages + 8;
  const double samples = static_cast<double>(replica.samples);
  const bool is_short = replica.samples <= (more + some) * replica.micro_batch;
  if (!is_short) replica.samples = more * replica.micro_batch;
  MOTLEY_ASSIGN(const Seconds longer, space_.evaluator.pipeline(replica));
  if (is_short) return longer.value;
  replica.samples = some * replica.micro_batch;
  MOTLEY_ASSIGN(const Seconds shorter, space_.evaluator.pipeline(replica));
  // While a pipeline fills it goes faster than its slowest stage.
  double each = (longer.value - shorter.value) / static_cast<double>(more - some);
  for (const PlannedStage& stage : replica.stages)
    each = std::max(each,
                    space_.sums.work(stage.unit, replica.micro_batch).pass(stage.first, stage.end));
  return longer.value +
         each * (samples / static_cast<double>(replica.micro_batch) - static_cast<double>(more));
}

double ShapeEstimates::last_after(const ReplicaMix& mix) const {
  double last = 0;
  for (const auto& [shape, count] : mix.parts) last = std::max(last, after_passes(shape));
  return last;
}

double ShapeEstimates::seconds_of(const ReplicaMix& mix) const {
  const double last = last_after(mix);
  return least_time(least_, space_.question.global_batch, [&](double seconds) {
    std::int64_t samples = 0;
    for (const auto& [shape, count] : mix.parts)
      samples += count * expected_samples(shape, seconds - (last - after_passes(shape)));
    return samples;
  });
}

double ShapeEstimates::expected_step(const ReplicaMix& mix) const {
  const double passes = seconds_of(mix) - last_after(mix);
  if (!(passes < kTooLong)) return kTooLong;
  StagePlan plan = plan_of(mix).plan;
  std::vector<std::vector<Seconds>> last;
  for (const auto& [shape, count] : mix.parts) {
    std::vector<Seconds> ends(shape.stages.size(), Seconds(passes));
    if (const auto known = after_stage_.find(shape); known != after_stage_.end())
      for (std::size_t s = 0; s < ends.size(); ++s)
        ends[s].value = std::max(0.0, passes - known->second[s]);
    last.insert(last.end(), static_cast<std::size_t>(count), ends);
  }
  if (!place_stages(plan, space_.costs, StagePlacing::kByStage)) return kTooLong;
  const auto end = space_.evaluator.end_after(plan, last);
  return end ? end->value : kTooLong;
}

}  // namespace motley::search
