#include "motley/search/stages/passes/mix.h"

#include <algorithm>
#include <tuple>

namespace motley::search {
namespace {

int depth_class_of(std::size_t stages) {
  int depth = 0;
  for (std::size_t most = 1; most < stages; most *= 2) ++depth;
  return depth;
}

}  // namespace

void sort_mixes(RankedMixes& ranked) {
  std::sort(ranked.begin(), ranked.end(), [](const RankedMix& a, const RankedMix& b) {
    return std::tie(a.seconds, a.mix, b.is_refined) < std::tie(b.seconds, b.mix, a.is_refined);
  });
}

StageReplica replica_of(const ReplicaShape& shape, std::int64_t samples) {
  StageReplica replica{{}, shape.micro_batch, samples};
  for (const ShapeStage& stage : shape.stages)
    replica.stages.push_back({stage.first, stage.end, stage.unit});
  return replica;
}

ReplicaShape shape_of(const StageReplica& replica) {
  ReplicaShape shape{{}, replica.micro_batch};
  for (const PlannedStage& stage : replica.stages)
    shape.stages.push_back({stage.first, stage.end, stage.unit});
  return shape;
}

MixPlan plan_of(const ReplicaMix& mix) {
  MixPlan made;
  std::vector<StageReplica>& replicas = made.plan.replicas;
  for (const auto& [shape, count] : mix.parts) {
    made.first_of.push_back(replicas.size());
    replicas.insert(replicas.end(), static_cast<std::size_t>(count), replica_of(shape, 1));
  }
  return made;
}

bool is_one_replica(const ReplicaMix& mix) {
  return mix.parts.size() == 1 && mix.parts.front().second == 1;
}

int depth_class(const ReplicaMix& mix) {
  std::size_t deepest = 0;
  for (const auto& [shape, count] : mix.parts) deepest = std::max(deepest, shape.stages.size());
  return depth_class_of(deepest);
}

int depth_class(const StagePlan& plan) {
  std::size_t deepest = 0;
  for (const StageReplica& replica : plan.replicas)
    deepest = std::max(deepest, replica.stages.size());
  return depth_class_of(deepest);
}

std::int64_t count_passes(const StagePlan& plan) {
  std::int64_t sum = 0;
  for (const StageReplica& replica : plan.replicas) sum += count_passes(replica);
  return sum;
}

}  // namespace motley::search
