#pragma once

#include <string>

#include "bench/simulated_cluster.h"
#include "motley/base/json.h"
#include "motley/base/result.h"

namespace motley::bench {

/// Runs kind "split": steps to within 2 % of the best split for good, from an even one without a
/// profile; or kind "change": the same after one device slows to half. Simulated clusters, all
/// policies of adapt/policies.h. Prints a table and adds a row for each cluster and policy: kind,
/// case, policy, jitter, devices, steps_to_2pct, changes, and mean_excess over the steps. A tenth
/// of 200 clusters unless `is_full`.
Result<void> run_split(const std::string& data, const std::string& kind, bool is_full, Json& rows);

/// Runs the same over clusters of the half on which the policy was developed.
Result<void> run_split_made(const std::string& data, const std::string& kind, bool is_full,
                            Json& rows);

}  // namespace motley::bench
