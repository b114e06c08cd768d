#pragma once

#include <optional>
#include <string>
#include <vector>

#include "motley/cluster/cluster.h"

namespace motley::cluster {

/// Describes this machine: one CPU device with as many threads as there are usable cores (affinity
/// and cgroup quota respected) and the memory that is there, and each CUDA device that the driver
/// reports (by dlopen of libcuda; none without a driver), and how these reach each other. `notes`
/// says what was found and what not.
struct ProbeReport {
  Cluster cluster;
  std::string processor, instructions;  ///< "AMD EPYC 9R14", "avx512f"
  int cores = 0;                        ///< that this process may use
  std::vector<std::string> notes;
};
Result<ProbeReport> probe_this_machine();

/// What this machine's processors are, as profiles tell them apart: "AMD EPYC 9R14, avx512f".
std::string describe_cpu();
/// The share of a core that a quota leaves this process; none: one core or more.
std::optional<double> core_quota();

}  // namespace motley::cluster
