#pragma once

#include <cstdint>
#include <string>

#include "bench/stages_restricted.h"
#include "motley/base/result.h"
#include "motley/control/planning/layers.h"

namespace motley::bench {

double cpu_seconds();  ///< of this process

/// Tells the CPU seconds of this process.
struct CpuClock : control::Clock {
  Seconds steady() const override;
  Seconds calendar() const override { return Seconds(0); }
};

/// Of a cluster file: node "n7" of so many devices. memory: "": as the kind's.
std::string node_text(int number, const std::string& kind, int devices, const std::string& memory);

/// What `motley plan --layer-times` says of a cluster: the plan, its program, and what narrower
/// spaces have.
struct PlannedCase {
  search::StageOutcome outcome;  ///< with a best plan
  Seconds program;
  double cpu_seconds = 0;  ///< of planning, reading files and clusters included
  Restrictions restricted;
};

/// Usage error where there is no plan.
Result<PlannedCase> plan_case(const control::LayerFiles& files, const std::string& cluster,
                              std::int64_t batch);

}  // namespace motley::bench
