#pragma once

#include <string>

#include "motley/cluster/cluster.h"
#include "motley/control/workers.h"

namespace motley::control {

/// The machines that were found, as one cluster: nodes by their own names (of equal ones, by what
/// they were asked for as), devices, and links as measured: one for all where all measure alike,
/// within a tenth, else one for each pair that was measured.
Result<cluster::Cluster> make_found_cluster(const FoundHosts& found, const std::string& name);

}  // namespace motley::control
