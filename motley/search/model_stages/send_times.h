#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "motley/search/model_stages/unit_programs.h"
#include "motley/search/stages/costs/stage_costs.h"

namespace motley::search {

/// What messages between devices of pools take, as the programs' cost model prices a send.
class SendTimes {
 public:
  /// Must outlive it.
  explicit SendTimes(const UnitPrograms& programs) : programs_(programs) {}

  /// StageCosts::hop(), by pools.
  std::optional<Hop> hop(std::size_t from, std::size_t to, HopReach reach, Bytes bytes) const;
  /// StageCosts::host_rate(): the best of what goes out to other hosts.
  BytesPerSecond host_rate(std::size_t pool) const;

 private:
  std::optional<Hop> find(std::size_t from, std::size_t to, HopReach reach, Bytes bytes) const;
  std::optional<std::pair<DeviceId, DeviceId>> find_ends(std::size_t from, std::size_t to,
                                                         HopReach reach) const;

  const UnitPrograms& programs_;
  mutable std::map<std::tuple<std::size_t, std::size_t, HopReach, std::int64_t>, std::optional<Hop>>
      hops_;
};

}  // namespace motley::search
