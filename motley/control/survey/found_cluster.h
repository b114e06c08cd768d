#pragma once

#include <string>
#include <vector>

#include "motley/cluster/cluster.h"
#include "motley/control/workers.h"

namespace motley::control {

struct FoundCluster {
  cluster::Cluster cluster;
  std::vector<std::string> notes;
};

/// Makes nodes by their own names (equal ones: as requested), devices, and links by find_links.
Result<FoundCluster> make_found_cluster(const FoundHosts& found, const std::string& name);

/// Describes the effects of a calendar that is off by more than a second; "": none.
std::string clock_note(const std::string& host, Seconds ahead);

}  // namespace motley::control
