#pragma once

#include <string>

#include "bench/simulated_cluster.h"
#include "motley/base/json.h"
#include "motley/base/result.h"

namespace motley::bench {

/// Kind "split": steps to within 2 % of the best split for good, from an even one without a
/// profile. Kind "change": the same after one device slows to half. Simulated clusters, all
/// policies of adapt/policies.h; prints a table, adds a row for each cluster and policy: kind,
/// case, policy, jitter, devices, steps_to_2pct, changes, and mean_excess over the steps. A tenth
/// of 200 clusters unless `is_full`.
Result<void> run_split(const std::string& data, const std::string& kind, bool is_full, Json& rows);

/// The same over clusters of the half on which the policy was developed.
Result<void> run_split_made(const std::string& data, const std::string& kind, bool is_full,
                            Json& rows);

}  // namespace motley::bench
