#pragma once

#include <optional>

#include "motley/search/stages/costs/stage_costs.h"

namespace motley::search {

/// Devices of a unit, or of several that are identical, that send or receive together.
struct UnitEnd {
  UnitEnd(const StageUnit& of) : unit(&of), devices(of.degree()) {}
  UnitEnd(const StageUnit& of, int how_many) : unit(&of), devices(how_many) {}

  const StageUnit* unit;  ///< must outlive it
  int devices;
};

/// A message between units: where their devices are of several pools, by the slowest way between
/// these, as each device has a part of what is sent. Absent: between some there is no way.
std::optional<Hop> find_hop(const StageCosts& costs, const UnitEnd& from, const UnitEnd& to,
                            HopReach reach, Bytes bytes);

/// All that a unit's devices send to other hosts at most: of pools in one host, that of the
/// fastest.
BytesPerSecond host_rate(const StageCosts& costs, const StageUnit& unit);

}  // namespace motley::search
