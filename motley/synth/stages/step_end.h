#pragma once

#include "motley/synth/stages/gradient_exchange.h"
#include "motley/synth/stages/stage_programs.h"

namespace motley::synth {

/// Writes the end of a step in stages, behind all operators: the last exchanges of gradients,
/// updates, with the norm of all gradients if the recipe needs it, and a report of loss, metrics
/// and wish to stop, summed over all devices.
void write_step_end(const graph::Graph& model, const plan::Recipe& recipe,
                    const ShardedStages& stages, GradientExchange& gradients,
                    StagePrograms& programs);

}  // namespace motley::synth
