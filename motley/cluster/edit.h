#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "motley/base/ids.h"
#include "motley/base/result.h"
#include "motley/cluster/cluster.h"

namespace motley::cluster {

/// A cluster after a change.
struct Edited {
  Cluster cluster;
  /// By device of `cluster`: which one it was before; none: it is new. What remains of a node is
  /// numbered anew.
  std::vector<std::optional<DeviceId>> was;
};

/// The cluster after a change that somebody says in words:
///
///   +1 a100-40g@c       one more device of a kind on a node: like the first of that kind there, or
///                       as the table of kinds has it
///   +2 c:0              two more like that device, on its node
///   -c:0                without it; so "-c" (a node), "-t4" (a kind), "-t4@c"
///   memory c:0 24GiB    of a device, a node, a kind, a kind on a node; "x2": twice what each has
///   link a-b x2         the link that joins just these nodes; "all"; also a rate: "10Gbps"
///   links x2            all links, and what nodes have as `bandwidth`
///
/// One device more or fewer changes its node's price in proportion to the node's devices. A node
/// without devices is gone, and links with it that it leaves with one node. The result is verified.
/// Usage errors (code cluster.edit) say what there is where a text names nothing, that no device
/// would be left, or what a text may be.
Result<Edited> edit_cluster(const Cluster& cluster, std::string_view edit);

/// The cluster as it is.
Edited edit_nothing(const Cluster& cluster);

/// The name of a link in such texts: its nodes, "a-b", or "all".
std::string link_name(const Cluster& cluster, const Link& link);

/// Sets the places and names of devices by their order and nodes, as a file's reader would.
void number_devices(Cluster& cluster);

}  // namespace motley::cluster
