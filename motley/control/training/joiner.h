#pragma once

#include <string>
#include <vector>

#include "motley/cluster/cluster.h"

namespace motley::control {

/// Parses a joining device, a cluster of one node with one CPU or CUDA device, and at most one link
/// of all, which connects it to any other node. Usage errors, with the line.
Result<cluster::Cluster> parse_joiner(const std::string& text);

/// "d:0".
inline const std::string& device_name(const cluster::Cluster& joiner) {
  return joiner.devices.front().name;
}

/// Adds the device last, or replaces a node of its name that was added so. Its links are its own,
/// else the cluster's link of all, else the slowest of the cluster's. Returns a description of
/// them. Usage errors leave `cluster` unchanged: the result is invalid.
Result<std::string> add_joiner(const cluster::Cluster& joiner, cluster::Cluster& cluster);

/// RUN_DIR/newcomers.json: texts of joined devices (docs/formats/run_directory.md).
std::string print_joiners(const std::vector<std::string>& texts);
/// None without a file.
Result<std::vector<std::string>> read_joiners(const std::string& path);

}  // namespace motley::control
