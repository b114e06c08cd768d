#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "motley/cluster/cluster.h"
#include "peers/hap/cost.h"

namespace motley::peers {

struct NamedCluster {
  std::string name;
  std::vector<std::string> devices;
  HapCluster rates;
  Seconds latency;  ///< of a collective; the released HAP ignores it
};

/// Makes one of its authors' clusters by name and number of devices:
///   v100-p100:N  one V100 to three P100, N a multiple of 4
///   equal:N      N devices with the released program's defaults
/// N is 1 to 4,096; without ":N" it is 8. Usage error with a suggestion for another name.
Result<NamedCluster> make_named_cluster(std::string_view text);

/// Views one of our clusters as HAP's profiler would, from the table of kinds and the links: two or
/// more devices, each of a planning kind.
///
/// Speed: a quarter of the kind's f32 peak. HAP's authors measured 3.86 of a V100's 15.7 Tflop/s
/// (0.25) and 2.15 of a P100's 9.3 to 10.6 (0.20 to 0.23), in their own count of flops.
///
/// Rates: whole tensors per second over the group's slowest link B, with n devices, at most k of
/// them on a node. Within a node B is the least rate of the devices' links to peers or, without
/// any, to the host.
///   all-gather, reduce-scatter: a ring moves (n - 1) / n of the tensor: B n / (n - 1)
///   all-reduce: both of them: B n / (2 (n - 1))
///   all-to-all: a node sends k (n - k) / n^2 of it: B n^2 / (k (n - k)), for k < n; else k = 1
///   by owner: every part crosses the slowest link once, one after the other: B
/// Latency: n - 1 hops of the link's.
///
/// Usage error (peers.hap-cluster) for fewer devices, a kind without a peak rate, or no rate at
/// all.
Result<NamedCluster> view_as_hap(const cluster::Cluster& cluster,
                                 const std::vector<DeviceId>& devices);

}  // namespace motley::peers
