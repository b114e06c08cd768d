#pragma once

#include <optional>

#include "motley/search/stages/costs/stage_costs.h"

namespace motley::search {

/// Devices of a unit, or of several identical ones, that send or receive together.
struct UnitEnd {
  UnitEnd(const StageUnit& of) : unit(&of), devices(of.degree()) {}
  UnitEnd(const StageUnit& of, int how_many) : unit(&of), devices(how_many) {}

  const StageUnit* unit;  ///< must outlive it
  int devices;
};

/// Returns a message between units. With several pools it is the slowest between these, as each
/// device has a part of the message; absent if two pools have no link.
std::optional<Hop> find_hop(const StageCosts& costs, const UnitEnd& from, const UnitEnd& to,
                            HopReach reach, Bytes bytes);

/// Returns a unit's largest rate to other hosts; of several pools in a host the fastest counts.
BytesPerSecond host_rate(const StageCosts& costs, const StageUnit& unit);

}  // namespace motley::search
