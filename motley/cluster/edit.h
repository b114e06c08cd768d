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
  /// By device of `cluster`: its earlier id; none: new. Devices of a node are renumbered.
  std::vector<std::optional<DeviceId>> was;
};

/// Applies a change given as text to a cluster:
///
///   +1 a100-40g@c       adds a device of a kind to a node: like the first of that kind there, or
///                       from the table of kinds
///   +2 c:0              adds two devices like that one to its node
///   -c:0                removes it; also "-c" (a node), "-t4" (a kind), "-t4@c"
///   memory c:0 24GiB    sets it for a device, a node, a kind, a kind on a node; "x2" doubles it
///   link a-b x2         scales the link that joins exactly these nodes; "all"; or a rate: "10Gbps"
///   links x2            scales all links and the `bandwidth` of nodes
///
/// Changing the number of devices scales the node's price. A node without devices is removed, as
/// are links with one node left. The result is verified. Usage errors (code cluster.edit) list
/// existing names, refuse to remove the last device, or say what a text may be.
Result<Edited> edit_cluster(const Cluster& cluster, std::string_view edit);

Edited edit_nothing(const Cluster& cluster);

/// Returns the name of a link in such texts: its nodes, "a-b", or "all".
std::string link_name(const Cluster& cluster, const Link& link);

/// Sets positions and names of devices by their order and nodes, as a reader of the file would.
void number_devices(Cluster& cluster);

}  // namespace motley::cluster
