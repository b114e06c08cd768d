#pragma once

#include "motley/base/result.h"
#include "motley/search/spmd/price_sharding.h"

namespace motley::search {

/// HAP's algorithm (EuroSys 2024) on Motley's graphs, rules and costs, so that comparisons with it
/// are generous: all devices; shares in proportion to speed; then in turn the ways that are best
/// for the shares and the shares that are best for the ways, while the cost falls. The cost is
/// HAP's: operators one after the other, each as long as its slowest device, and exchanges, of
/// which nothing is hidden; shares by the closed form of search/spmd/balance.h. Unlike HAP's beam
/// the choice of ways is exact, and backward operators have ways of their own.
Result<SpmdPlan> find_hap_plan(SpmdStudy& study);

}  // namespace motley::search
