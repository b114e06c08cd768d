#pragma once

#include <string>
#include <vector>

#include "motley/base/units.h"
#include "motley/cost/operators/pace.h"
#include "motley/search/price/costs.h"

namespace motley::search {

/// Result of the phase `price`: whole devices' times, for people and tests. Planners read Costs.
struct CostTable {
  /// All compute of a step of this many samples, at the device's pace.
  struct Row {
    std::int64_t samples = 0;
    Seconds alone, shared;  ///< as the only device; as one of several, without exchanges
    bool operator==(const Row&) const = default;
  };
  struct Device {
    std::string name, kind;
    std::string grounds;                    ///< origin of the times ("measured")
    std::vector<cost::Pace::Sample> paces;  ///< one entry: the same for all steps
    std::vector<Row> rows;                  ///< by samples, measured ones only
    bool operator==(const Device&) const = default;
  };
  std::vector<Device> devices;  ///< in cluster order
  bool operator==(const CostTable&) const = default;
};

CostTable build_cost_table(const Costs& costs, const cluster::Cluster& cluster);

/// Prints the text form "motley.costs/1":
///
///  motley.costs/1
///  device "a:0" kind "cpu" from "measured"
///    pace 0.4 of 0.010
///    batch 8 alone 0.011 shared 0.012
///
/// Times are seconds. A pace is the fraction of full speed in a step with this many seconds of
/// compute.
std::string print_cost_table(const CostTable& table);

}  // namespace motley::search
