#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "motley/search/stages/shapes/shape_search.h"
#include "motley/search/stages/stage_plan.h"

namespace motley::search {

/// Shapes in whole numbers: a plan without samples, places and orders of passes.
struct ReplicaMix {
  std::vector<std::pair<ReplicaShape, int>> parts;  ///< by rising shape
  auto operator<=>(const ReplicaMix&) const = default;
};

/// A mix and what its step is expected to take.
struct RankedMix {
  double seconds = 0;
  ReplicaMix mix;
  bool is_refined = false;  ///< its cuts were moved
};
/// By rising seconds.
using RankedMixes = std::vector<RankedMix>;
void sort_mixes(RankedMixes& ranked);

/// A replica of the shape; its places are not given.
StageReplica replica_of(const ReplicaShape& shape, std::int64_t samples);
ReplicaShape shape_of(const StageReplica& replica);

/// The replicas of a mix, a sample each, and each part's first one.
struct MixPlan {
  StagePlan plan;
  std::vector<std::size_t> first_of;
};
MixPlan plan_of(const ReplicaMix& mix);

bool is_one_replica(const ReplicaMix& mix);

/// The class of the longest pipeline: of 1, 2, 3 or 4, 5 to 8, ... stages.
int depth_class(const ReplicaMix& mix);
int depth_class(const StagePlan& plan);

/// Counts the micro-batches through stages that a simulation goes through.
std::int64_t count_passes(const StagePlan& plan);

}  // namespace motley::search
