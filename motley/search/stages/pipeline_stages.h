#pragma once

#include "motley/base/result.h"
#include "motley/cost/layers/pipeline_plan.h"
#include "motley/search/stages/costs/layer_stage_costs.h"
#include "motley/search/stages/stage_plan.h"

namespace motley::search {

/// Pools of as many hosts as another tool's plan needs, of unlimited memory, in the order in which
/// it names kinds.
std::vector<DevicePool> pools_of(const cost::PipelinePlan& plan, int devices_per_host);

/// That plan over these costs, placed as it says. Usage error for a kind or degree that was not
/// profiled, or where the plan is not one (verify_stage_plan).
Result<StagePlan> to_stage_plan(const cost::PipelinePlan& plan, const LayerStageCosts& costs);

/// The runtime whose measured plans come with Sailor (Megatron on DeepSpeed): sends block on the
/// stream of computation and every member of a tensor-parallel group sends the whole activation, as
/// its published source has it.
StageRuntime blocking_runtime();

}  // namespace motley::search
