#pragma once

#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/cli/options/planning_options.h"

namespace motley::cli {

/// A workload of HAP's authors, which replaces a model for HAP's own planners.
struct HapFlags {
  std::string model;
  std::string cluster = "v100-p100:8";  ///< theirs; a cluster file replaces it
};
std::vector<Flag> hap_flags(HapFlags& flags);

/// Is `plan` asked for HAP itself, by planner or by workload?
bool asks_for_hap(const PlanningOptions& options, const HapFlags& hap);

/// Plans a workload of HAP's authors with HAP as released or as described (peers/hap), by its own
/// cost, on its authors' clusters or a cluster file's devices. Refuses `output`.
Result<int> plan_hap(const PlanningOptions& options, const HapFlags& hap, const std::string& output,
                     const Context& context);

}  // namespace motley::cli
