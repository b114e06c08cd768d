#pragma once

#include "motley/synth/stages/gradient_exchange.h"
#include "motley/synth/stages/stage_programs.h"

namespace motley::synth {

/// Writes what comes behind all operators of a step in stages: the rest of the exchange of
/// gradients, updates, with a norm over the gradients of all devices where the recipe wants one,
/// and reports of the loss, the metrics of `model` and the wish to stop, which are sums over all
/// devices. Call once, when all operators are written.
void write_step_end(const graph::Graph& model, const plan::Recipe& recipe,
                    const ShardedStages& stages, GradientExchange& gradients,
                    StagePrograms& programs);

}  // namespace motley::synth
