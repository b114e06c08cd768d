#pragma once

#include <vector>

#include "motley/search/stages/costs/stage_costs.h"

namespace motley::search {

/// Kinds of devices in a stage: one, several, or first one and then several, since a search over
/// more units need not find what one over fewer does.
enum class UnitKinds { kIdentical, kSeveral, kIdenticalFirst };

/// Finds units of devices from several pools in the same hosts. Of two or three pools: each pair,
/// and all; of more: all, and the fastest two, three and four. Each has all devices of these pools
/// in a host, or a half, a quarter, ... of each as long as that is whole. None if no two pools
/// share hosts. `speeds`: of a device, by pool. In the order of StageCosts::units().
std::vector<StageUnit> find_mixed_units(const std::vector<DevicePool>& pools,
                                        const std::vector<double>& speeds);

}  // namespace motley::search
