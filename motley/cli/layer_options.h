#pragma once

#include <string>
#include <vector>

#include "motley/cli/planning_options.h"
#include "motley/control/layers.h"

namespace motley::cli {

/// A layer profile of another tool, in place of a model.
struct LayerOptions {
  control::LayerFiles files;
  bool is_given() const { return !files.times.empty() || !files.metis.empty(); }
};
std::vector<Flag> layer_flags(LayerOptions& options);

/// `plan` with a layer profile in place of an exported model; `output`: plan file to write, or "".
Result<int> plan_layers(const PlanningOptions& options, const LayerOptions& layers,
                        const std::string& output, const Context& context);

/// What `simulate` is to do with a layer profile.
struct SimulatedPlan {
  std::string plan;     ///< file: motley.plan/1, or a pipeline of that tool
  std::string cluster;  ///< file; of a pipeline none
  int steps = 1;
  std::string trace;  ///< Chrome trace to write; "": none
};
Result<int> simulate_layers(const SimulatedPlan& asked, const LayerOptions& layers,
                            const Context& context);

}  // namespace motley::cli
