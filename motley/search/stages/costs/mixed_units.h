#pragma once

#include <vector>

#include "motley/search/stages/costs/stage_costs.h"

namespace motley::search {

/// What the devices of a stage may be: of one kind, or of several; or first the one and then the
/// other, as what a search finds among fewer units need not be found among more.
enum class UnitKinds { kIdentical, kSeveral, kIdenticalFirst };

/// Units of devices of several pools that are tried for a stage, where pools lie in the same hosts:
/// of two or three pools each two of them, and all; of more all, and the fastest two, three and
/// four. Each with all of these pools' devices in a host, and with a half, a quarter, ... of each
/// as long as that is whole. None where no two pools share their hosts. `speeds`: of a device, by
/// pool. In the order of StageCosts::units().
std::vector<StageUnit> find_mixed_units(const std::vector<DevicePool>& pools,
                                        const std::vector<double>& speeds);

}  // namespace motley::search
