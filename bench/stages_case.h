#pragma once

#include <cstdint>
#include <string>

#include "bench/stages_restricted.h"
#include "motley/base/result.h"
#include "motley/control/planning/layers.h"

namespace motley::bench {

double cpu_seconds();  ///< of this process

/// Prints node "n7" of a cluster file, with `devices` devices. `memory` "": the kind's.
std::string node_text(int number, const std::string& kind, int devices, const std::string& memory);

/// `motley plan --layer-times` of a cluster: the plan, its program, and restricted spaces.
struct PlannedCase {
  search::StageOutcome outcome;  ///< with a best plan
  Seconds program;
  double cpu_seconds = 0;  ///< of planning, including reading files and clusters
  Restrictions restricted;
};

/// Usage error where there is no plan.
Result<PlannedCase> plan_case(const control::LayerFiles& files, const std::string& cluster,
                              std::int64_t batch);

}  // namespace motley::bench
