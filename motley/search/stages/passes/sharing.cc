#include "motley/search/stages/passes/sharing.h"

#include <algorithm>
#include <utility>

#include "motley/search/stages/passes/time_bracket.h"

namespace motley::search {
namespace {

constexpr int kSharings = 3;  // each corrects the times by a simulation of what the last one gave

}  // namespace

Result<std::vector<std::int64_t>> share_samples(const SearchSpace& space,
                                                const ShapeEstimates& estimates,
                                                const ReplicaMix& mix, const MixPlan& made) {
  const std::int64_t batch = space.question.global_batch;
  std::vector<double> slower(mix.parts.size(), 1);  // than the model says
  std::vector<std::int64_t> samples(mix.parts.size());
  const double last = estimates.last_after(mix);
  const auto does = [&](std::size_t i, double time) {
    const ReplicaShape& shape = mix.parts[i].first;
    const double until = time - (last - estimates.after_passes(shape));
    return space.ringed.most_samples(shape, until / slower[i], batch);
  };
  for (int round = 0; round < kSharings; ++round) {
    const double seconds = least_time(estimates.least() / 2, batch, [&](double time) {
      std::int64_t sum = 0;
      for (std::size_t i = 0; i < mix.parts.size(); ++i) sum += mix.parts[i].second * does(i, time);
      return sum;
    });
    if (!(seconds < kTooLong)) break;
    for (std::size_t i = 0; i < mix.parts.size(); ++i) {
      const ReplicaShape& shape = mix.parts[i].first;
      samples[i] = does(i, seconds);
      if (samples[i] == 0) continue;
      StageReplica replica = made.plan.replicas[made.first_of[i]];
      replica.samples = samples[i];
      MOTLEY_ASSIGN(const double time, estimates.simulate_passes(replica));
      slower[i] = (time + estimates.after_passes(shape)) / space.ringed.seconds(shape, samples[i]);
    }
  }
  return samples;
}

void trim_samples(const SearchSpace& space, const ReplicaMix& mix, MixPlan& made) {
  StagePlan& plan = made.plan;
  std::int64_t excess = -space.question.global_batch;
  std::vector<std::pair<double, std::size_t>> slowest;
  for (std::size_t i = 0; i < mix.parts.size(); ++i)
    for (int r = 0; r < mix.parts[i].second; ++r) {
      const std::size_t index = made.first_of[i] + static_cast<std::size_t>(r);
      const std::int64_t samples = plan.replicas[index].samples;
      excess += samples;
      slowest.emplace_back(
          space.ringed.seconds(mix.parts[i].first, std::max<std::int64_t>(1, samples)), index);
    }
  std::sort(slowest.rbegin(), slowest.rend());
  for (std::size_t k = 0; excess > 0; k = (k + 1) % slowest.size()) {
    StageReplica& replica = plan.replicas[slowest[k].second];
    const std::int64_t rest = replica.samples % replica.micro_batch;
    const std::int64_t less =
        std::min({excess, rest > 0 ? rest : replica.micro_batch, replica.samples});
    replica.samples -= less;
    excess -= less;
  }
  std::erase_if(plan.replicas, [](const StageReplica& replica) { return replica.samples == 0; });
  const std::vector<std::int64_t>& batches = space.costs.micro_batches();
  for (StageReplica& replica : plan.replicas)
    for (auto batch = batches.rbegin(); !has_full_ends(replica) && batch != batches.rend(); ++batch)
      if (*batch < replica.micro_batch) replica.micro_batch = *batch;
}

}  // namespace motley::search
