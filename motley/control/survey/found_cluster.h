#pragma once

#include <string>
#include <vector>

#include "motley/cluster/cluster.h"
#include "motley/control/workers.h"

namespace motley::control {

/// The surveyed machines as one cluster, with notes for people.
struct FoundCluster {
  cluster::Cluster cluster;
  std::vector<std::string> notes;
};

/// Makes nodes with their own names (with the requested names, where own names are equal), their
/// devices, and the links from find_links.
Result<FoundCluster> make_found_cluster(const FoundHosts& found, const std::string& name);

/// Describes the effects of a host's calendar that is off by more than a second; "": it is not.
std::string clock_note(const std::string& host, Seconds ahead);

}  // namespace motley::control
