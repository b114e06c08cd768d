#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/program/program.h"

namespace motley::cost {

/// Says how long things take. Implementations: measured tables (profile_cost.h); tests use tables
/// in a line. A missing entry is an error that names the key.
class CostModel {
 public:
  virtual ~CostModel() = default;
  /// Seconds of every instruction of one device's program at the device's own speed, in order;
  /// transfers are 0.
  virtual Result<std::vector<Seconds>> compute_times(
      const program::DeviceProgram& program) const = 0;
  /// Seconds of a collective ("motley::all_reduce", "motley::all_gather") of `bytes` per rank among
  /// the devices of a group, from the moment the last member has arrived.
  virtual Result<Seconds> collective_time(std::string_view op, Bytes bytes,
                                          const std::vector<std::string>& devices) const = 0;
};

}  // namespace motley::cost
