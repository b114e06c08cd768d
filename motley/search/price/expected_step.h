#pragma once

#include <map>
#include <string>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/cost/cost_model.h"
#include "motley/program/program.h"
#include "motley/simulate/conditions.h"

namespace motley::search {

/// Returns the expected step time: the simulated step or, if some devices vary (by name), the
/// median of many steps with drawn times. Members wait for the slowest, so a plan whose devices
/// meet more often pays more for variation. Never below `simulated`: a lognormal factor of mean 1
/// has a median below 1, which must not show as a shorter step. Deterministic.
Result<Seconds> expected_step(Seconds simulated, const program::Program& program,
                              const cost::CostModel& model,
                              const std::map<std::string, simulate::Jitter>& jitter);

}  // namespace motley::search
