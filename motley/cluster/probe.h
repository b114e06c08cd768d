#pragma once

#include "motley/cluster/cluster.h"

namespace motley::cluster {

/// Describes this machine: one CPU device with as many threads as there are usable cores (affinity
/// and cgroup quota respected) and the memory that is there, and each CUDA device that the driver
/// reports (by dlopen of libcuda; none without a driver). `notes` says what was found and what not.
struct ProbeReport {
  Cluster cluster;
  std::vector<std::string> notes;
};
Result<ProbeReport> probe_this_machine();

}  // namespace motley::cluster
