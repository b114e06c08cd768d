#pragma once

#include "motley/synth/stages/operator_order.h"
#include "motley/synth/stages/stage_needs.h"

namespace motley::synth {

/// Builds the graphs of a step's stages, task by task, and the values between them. Adds up a
/// stage's terms of an output behind each task; terms of a gradient whose parameter the stage lacks
/// go to the first stage of the replica that has it. `needs` is of `all`, whose operators it takes,
/// and of the step's stages. O(graph log values).
void build_stage_graphs(const StageNeeds& needs, const OperatorOrder& order, graph::Graph& all,
                        StagedStep& step);

}  // namespace motley::synth
