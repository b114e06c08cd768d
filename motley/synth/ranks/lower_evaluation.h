#pragma once

#include <cstdint>

#include "motley/base/result.h"
#include "motley/graph/graph.h"
#include "motley/plan/plan.h"
#include "motley/program/program.h"
#include "motley/synth/step/sharding.h"

namespace motley::synth {

/// A model's two graphs: of a training step, and of its forward pass in eval mode.
struct TrainedAndEvaluated {
  const graph::Graph& training;
  const graph::Graph& evaluation;
};
/// How a verified plan's devices train (find_sharding), and what of the plan its programs say.
struct TrainedPlan {
  const plan::Plan& plan;
  const Sharding& sharding;
};

/// The program by which the plan's devices evaluate `samples` samples: samples are split in
/// proportion to what the plan gives the devices, parameters are kept as training keeps them (its
/// program's buffers have the same names and parts) and gathered where an operator wants them. Each
/// device reports the loss and the metrics of all samples. Errors as of lower (lower.h).
Result<program::Program> lower_evaluation(const TrainedAndEvaluated& graphs,
                                          const TrainedPlan& trained, std::int64_t samples);

}  // namespace motley::synth
