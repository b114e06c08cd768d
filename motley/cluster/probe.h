#pragma once

#include <optional>
#include <string>
#include <vector>

#include "motley/cluster/cluster.h"

namespace motley::cluster {

/// This machine: one CPU device with a thread per usable core (within affinity and cgroup quota)
/// and the available memory, each CUDA device of the driver (by dlopen of libcuda; none without a
/// driver), and how they reach each other. `notes` lists what was found and what not.
struct ProbeReport {
  Cluster cluster;
  std::string processor, instructions;  ///< "AMD EPYC 9R14", "avx512f"
  int cores = 0;                        ///< available to this process
  std::vector<std::string> notes;
};
Result<ProbeReport> probe_this_machine();

/// Describes this machine's processors the way profiles distinguish them: "AMD EPYC 9R14, avx512f".
std::string describe_cpu();
/// Returns the share of a core that a quota leaves this process; none: one core or more.
std::optional<double> core_quota();

}  // namespace motley::cluster
