#pragma once

#include "motley/base/result.h"
#include "motley/search/spmd/price_sharding.h"

namespace motley::search {

/// Runs HAP's algorithm (EuroSys 2024) on Motley's graphs, rules and costs, for a favourable
/// comparison. It uses all devices, starts with shares proportional to speed, and alternates
/// between the best ways for the shares and the best shares for the ways while the cost falls. The
/// cost is HAP's: operators in sequence, each as long as its slowest device, and no overlap of
/// exchanges; shares by the closed form of search/spmd/balance.h. Unlike HAP's beam search the
/// choice of ways is exact, and backward operators have ways of their own.
Result<SpmdPlan> find_hap_plan(SpmdStudy& study);

}  // namespace motley::search
