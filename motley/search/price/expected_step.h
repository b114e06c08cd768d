#pragma once

#include <map>
#include <string>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/cost/cost_model.h"
#include "motley/program/program.h"
#include "motley/simulate/conditions.h"

namespace motley::search {

/// What a step of a program is expected to take: the step as simulated or, if some of its devices
/// vary (by name), the median of many whose times are drawn. Members wait for the slowest, so a
/// plan whose devices meet more often pays more for their variation. Never below `simulated`: a
/// lognormal factor of mean 1 has its median below 1, which must not show as a shorter step.
/// Deterministic.
Result<Seconds> expected_step(Seconds simulated, const program::Program& program,
                              const cost::CostModel& model,
                              const std::map<std::string, simulate::Jitter>& jitter);

}  // namespace motley::search
