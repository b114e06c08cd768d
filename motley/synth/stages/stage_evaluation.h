#pragma once

#include <cstdint>
#include <vector>

#include "motley/base/result.h"
#include "motley/cluster/cluster.h"
#include "motley/plan/plan.h"
#include "motley/program/program.h"
#include "motley/synth/ranks/lower_evaluation.h"

namespace motley::synth {

/// The same as lower_evaluation for a verified plan with stages: the replica that has most samples
/// evaluates, in one pass, each operator where training has the parameters that it reads; operators
/// of a region that several devices share are split by samples. All devices, those of other
/// replicas too, report loss and metrics. `groups`: of the program that trains, which keep their
/// numbers. Usage error (synth.unsupported) where no region of the
/// replica has all parameters of an operator.
Result<program::Program> lower_stage_evaluation(const TrainedAndEvaluated& graphs,
                                                const plan::Plan& plan,
                                                const cluster::Cluster& cluster,
                                                const std::vector<program::Group>& groups,
                                                std::int64_t samples);

}  // namespace motley::synth
