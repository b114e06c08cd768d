#pragma once

#include "motley/base/result.h"
#include "motley/cost/layers/pipeline_plan.h"
#include "motley/search/stages/costs/layer_stage_costs.h"
#include "motley/search/stages/stage_plan.h"

namespace motley::search {

/// Returns pools of the hosts that another tool's plan needs, with unlimited memory, by kind.
std::vector<DevicePool> pools_of(const cost::PipelinePlan& plan, int devices_per_host);

/// Converts that plan, with its placement, to these costs. Usage error for a kind or degree that
/// was not profiled, or an invalid plan (verify_stage_plan).
Result<StagePlan> to_stage_plan(const cost::PipelinePlan& plan, const LayerStageCosts& costs);

/// Returns the runtime of Sailor's measured plans (Megatron on DeepSpeed): sends block the compute
/// stream, and every member of a tensor-parallel group sends the whole activation, as in its
/// source.
StageRuntime blocking_runtime();

}  // namespace motley::search
