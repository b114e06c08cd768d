#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "motley/base/json.h"
#include "motley/base/result.h"
#include "motley/control/planning/layer_files.h"

namespace motley::bench {

/// Sailor's layers on a cluster of zones.
struct ZonedCase {
  control::LayerFiles files;
  std::string cluster;  ///< text of a cluster file
  std::string name;
  std::int64_t batch = 0;
};
std::vector<ZonedCase> zoned_cases(const std::string& data);

/// Sailor's layer profiles on clusters drawn at random of two or three zones with faster links
/// inside. Prints its lines and adds a row a cluster.
Result<void> run_zones(const std::string& data, Json& rows);

}  // namespace motley::bench
