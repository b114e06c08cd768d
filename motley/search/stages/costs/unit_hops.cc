#include "motley/search/stages/costs/unit_hops.h"

#include <algorithm>

namespace motley::search {

std::optional<Hop> find_hop(const StageCosts& costs, const UnitEnd& from, const UnitEnd& to,
                            HopReach reach, Bytes bytes) {
  std::optional<Hop> slowest;
  double longest = 0;
  for (const UnitPart& a : from.unit->parts)
    for (const UnitPart& b : to.unit->parts) {
      const auto hop = costs.hop({a.pool, from.devices}, {b.pool, to.devices}, reach, bytes);
      if (!hop) return std::nullopt;
      const double takes = hop->delay.value + static_cast<double>(bytes.value) / hop->rate.value;
      if (slowest && takes <= longest) continue;
      slowest = hop;
      longest = takes;
    }
  return slowest;
}

BytesPerSecond host_rate(const StageCosts& costs, const StageUnit& unit) {
  double best = 0;
  for (const UnitPart& part : unit.parts) best = std::max(best, costs.host_rate(part.pool).value);
  return BytesPerSecond(best);
}

}  // namespace motley::search
