#pragma once

#include <string>
#include <vector>

#include "motley/cluster/cluster.h"

namespace motley::control {

/// A device that a running job's cluster has not, as a cluster of its own: one node with one CPU
/// or CUDA device, and at most a link of all, which says how it is joined to whatever others there
/// are. Usage errors, with the line.
Result<cluster::Cluster> parse_joiner(const std::string& text);

/// "d:0".
inline const std::string& device_name(const cluster::Cluster& joiner) {
  return joiner.devices.front().name;
}

/// Adds it behind all others, or, where a node of its name is there, which must be one that was
/// added so, in that one's place. How it is joined: as it says; else as the cluster's link of all
/// says; else by the least of what the cluster's links say. Returns words on that. Usage errors:
/// what came of it is no cluster; that is left as it was.
Result<std::string> add_joiner(const cluster::Cluster& joiner, cluster::Cluster& cluster);

/// RUN_DIR/newcomers.json: texts of those that have come (docs/formats/run_directory.md).
std::string print_joiners(const std::vector<std::string>& texts);
/// Without the file: none.
Result<std::vector<std::string>> read_joiners(const std::string& path);

}  // namespace motley::control
