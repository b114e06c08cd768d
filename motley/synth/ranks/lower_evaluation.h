#pragma once

#include <cstdint>

#include "motley/base/result.h"
#include "motley/graph/graph.h"
#include "motley/plan/plan.h"
#include "motley/program/program.h"
#include "motley/synth/step/sharding.h"

namespace motley::synth {

/// A model's two graphs: a training step, and the forward pass in eval mode.
struct TrainedAndEvaluated {
  const graph::Graph& training;
  const graph::Graph& evaluation;
};
/// How a verified plan's devices train (find_sharding), and the plan that their programs record.
struct TrainedPlan {
  const plan::Plan& plan;
  const Sharding& sharding;
};

/// Returns the program with which the plan's devices evaluate `samples` samples. Samples are split
/// in proportion to the plan. Parameters are kept as in training, in buffers of the same names and
/// parts, and gathered where an operator needs them. Each device reports the loss and the metrics
/// of all samples. Errors are those of lower (lower.h).
Result<program::Program> lower_evaluation(const TrainedAndEvaluated& graphs,
                                          const TrainedPlan& trained, std::int64_t samples);

}  // namespace motley::synth
