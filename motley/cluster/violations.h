#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "motley/cluster/cluster.h"

namespace motley::cluster {

/// The part of a cluster with a violation; gives the parser the line to name.
enum class ViolatedPart { kCluster, kNode, kDevice, kLink };

/// One broken rule of docs/formats/cluster.md.
struct Violation {
  ViolatedPart part = ViolatedPart::kCluster;
  std::size_t index = 0;  ///< of the node, device or link
  std::string message;    ///< "node 'a': ..."
};

/// Returns every violation, in the order of the file: cluster, nodes, devices, links.
std::vector<Violation> find_violations(const Cluster& cluster);

}  // namespace motley::cluster
