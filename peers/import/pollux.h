#pragma once

#include <string>
#include <vector>

#include "motley/base/result.h"
#include "peers/steps/data_parallel_step.h"

namespace motley::peers {

/// Importer of the Pollux traces (Qiao et al., OSDI 2021): steps of data-parallel training on
/// machines with four T4 each.

/// TASK/placements.csv: `placement` has one digit a machine, the number of devices used there
/// ("14": one on the first and four on the second). Errors name file and line.
Result<std::vector<DataParallelSample>> read_pollux_placements(const std::string& path);

/// TASK/scalability.csv: num_nodes and num_replicas instead; the devices lie as evenly as they can.
Result<std::vector<DataParallelSample>> read_pollux_scalability(const std::string& path);

}  // namespace motley::peers
