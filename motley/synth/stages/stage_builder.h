#pragma once

#include "motley/synth/stages/operator_order.h"
#include "motley/synth/stages/stage_needs.h"

namespace motley::synth {

/// Builds the graph of each stage of a step, task by task in the order of all, and says what values
/// pass between them. Terms of an output in one stage are added up behind each task; of a gradient
/// whose parameter the stage does not have they go to the first stage of the replica that has it.
/// `all` is what `needs` is of, whose operators it takes; the step has the stages that `needs` is
/// of. O(graph log values).
void build_stage_graphs(const StageNeeds& needs, const OperatorOrder& order, graph::Graph& all,
                        StagedStep& step);

}  // namespace motley::synth
