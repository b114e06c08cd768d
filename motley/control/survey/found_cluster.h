#pragma once

#include <string>
#include <vector>

#include "motley/cluster/cluster.h"
#include "motley/control/workers.h"

namespace motley::control {

/// The machines that were found, as one cluster, and what is to be said of them.
struct FoundCluster {
  cluster::Cluster cluster;
  std::vector<std::string> notes;
};

/// Nodes by their own names (of equal ones, by what they were asked for as), devices, and links as
/// find_links writes them.
Result<FoundCluster> make_found_cluster(const FoundHosts& found, const std::string& name);

/// Of a host whose calendar is more than a second off, what that affects; "" of others.
std::string clock_note(const std::string& host, Seconds ahead);

}  // namespace motley::control
