#pragma once

#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/cli/options/planning_options.h"

namespace motley::cli {

/// A workload of HAP's authors in place of a model, for the planners that are HAP itself.
struct HapFlags {
  std::string model;                    ///< "bert12"
  std::string cluster = "v100-p100:8";  ///< theirs; a cluster file takes its place
};
std::vector<Flag> hap_flags(HapFlags& flags);

/// Is `plan` asked for HAP itself: by planner or by workload?
bool asks_for_hap(const PlanningOptions& options, const HapFlags& hap);

/// `plan` by HAP as released or as described, over a workload of its authors (peers/hap): step and
/// shares in HAP's own cost, on its authors' clusters or on a cluster file's devices. `output` is
/// where a plan was to be written, which is refused.
Result<int> plan_hap(const PlanningOptions& options, const HapFlags& hap, const std::string& output,
                     const Context& context);

}  // namespace motley::cli
