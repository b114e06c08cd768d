#include "motley/search/stages/pipeline_stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace motley::search {

std::vector<DevicePool> pools_of(const cost::PipelinePlan& plan, int devices_per_host) {
  std::vector<DevicePool> pools;
  for (const cost::PipelineStage& stage : plan.stages)
    for (const cost::StageGroup& group : stage.replicas) {
      auto pool = std::find_if(pools.begin(), pools.end(),
                               [&](const DevicePool& known) { return known.kind == group.kind; });
      if (pool == pools.end())
        pool =
            pools.insert(pools.end(), DevicePool{group.kind, "", 0, devices_per_host,
                                                 Bytes(std::numeric_limits<std::int64_t>::max())});
      pool->devices += group.tensor_parallel;
    }
  int host = 0;
  for (DevicePool& pool : pools) {
    // Groups that do not divide a host leave devices idle.
    pool.devices = (2 * pool.devices + 2 * pool.per_host - 1) / pool.per_host * pool.per_host;
    pool.first_host = host;
    host += pool.hosts();
  }
  return pools;
}

Result<StagePlan> to_stage_plan(const cost::PipelinePlan& plan, const LayerStageCosts& costs) {
  StagePlan result;
  const std::size_t replicas = plan.stages.empty() ? 0 : plan.stages[0].replicas.size();
  for (std::size_t r = 0; r < replicas; ++r) {
    StageReplica& replica = result.replicas.emplace_back();
    replica.micro_batch = plan.micro_batch;
    replica.samples = plan.micro_batch * plan.micro_batches;
    for (std::size_t s = 0; s < plan.stages.size(); ++s) {
      const cost::PipelineStage& stage = plan.stages[s];
      if (stage.replicas.size() != replicas)
        return usage_error("search.stages", fmt::format("stage {} has {} replicas, wanted {}", s,
                                                        stage.replicas.size(), replicas));
      const auto& [kind, degree] = stage.replicas[r];
      const auto unit = costs.find_unit(kind, degree);
      if (!unit)
        return usage_error("search.stages", fmt::format("{} at tensor parallelism {} was not "
                                                        "profiled, or its bytes are not known",
                                                        kind, degree));
      replica.stages.push_back({stage.first, stage.end, *unit});
    }
  }
  if (!place_stages(result, costs, StagePlacing::kInOrder))
    return usage_error("search.stages", "the plan's groups do not fit its hosts");
  MOTLEY_RETURN_IF_ERROR(verify_stage_plan(result, costs));
  return result;
}

StageRuntime blocking_runtime() { return {.sends_whole = true, .messages_block = true}; }

}  // namespace motley::search
