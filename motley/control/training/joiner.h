#pragma once

#include <string>
#include <vector>

#include "motley/cluster/cluster.h"

namespace motley::control {

/// Parses a joining device, given as a cluster of its own: one node with one CPU or CUDA device,
/// and at most one link of all, which connects it to any other node. Usage errors, with the line.
Result<cluster::Cluster> parse_joiner(const std::string& text);

/// "d:0".
inline const std::string& device_name(const cluster::Cluster& joiner) {
  return joiner.devices.front().name;
}

/// Adds the device behind all others, or replaces a node of its name that was added so. Its links
/// are its own, else the cluster's link of all, else the slowest of the cluster's links. Returns a
/// description of them. Usage errors: the result is no valid cluster; `cluster` is then unchanged.
Result<std::string> add_joiner(const cluster::Cluster& joiner, cluster::Cluster& cluster);

/// Contents of RUN_DIR/newcomers.json: the texts of joined devices (docs/formats/run_directory.md).
std::string print_joiners(const std::vector<std::string>& texts);
/// Returns none if there is no file.
Result<std::vector<std::string>> read_joiners(const std::string& path);

}  // namespace motley::control
