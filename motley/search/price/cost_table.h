#pragma once

#include <string>
#include <vector>

#include "motley/base/units.h"
#include "motley/cost/operators/pace.h"
#include "motley/search/price/costs.h"

namespace motley::search {

/// What pricing found out about a model's devices: the artifact of the phase `price`, for people
/// and tests. It sums the operators up; planners read Costs.
struct CostTable {
  /// A step of so many samples: all compute of the device, at its pace.
  struct Row {
    std::int64_t samples = 0;
    Seconds alone, shared;  ///< as the only device; as one of several, less exchanges
    bool operator==(const Row&) const = default;
  };
  struct Device {
    std::string name, kind;
    std::string grounds;                    ///< where the times come from ("measured")
    std::vector<cost::Pace::Sample> paces;  ///< one: the same for all steps
    std::vector<Row> rows;                  ///< by samples, those that were measured
    bool operator==(const Device&) const = default;
  };
  std::vector<Device> devices;  ///< in cluster order
  bool operator==(const CostTable&) const = default;
};

CostTable build_cost_table(const Costs& costs, const cluster::Cluster& cluster);

/// Text form "motley.costs/1":
///
///   motley.costs/1
///   device "a:0" kind "cpu" from "measured"
///     pace 0.4 of 0.010
///     batch 8 alone 0.011 shared 0.012
///
/// Seconds; a pace is the part of full speed at which so many seconds of compute are done.
std::string print_cost_table(const CostTable& table);

}  // namespace motley::search
