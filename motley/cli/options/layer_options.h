#pragma once

#include <string>

#include "motley/cli/options/planning_options.h"
#include "motley/control/planning/layers.h"

namespace motley::cli {

/// What a layer profile's predictions were off by (docs/benchmarks.md, "Accuracy").
std::string layers_note(const std::string& model);

/// Is it asked for stages of a layer profile?
bool finds_layer_stages(const PlanningOptions& options);

/// `plan` of such; `output`: plan file to write, or "".
Result<int> plan_layer_stages(const PlanningOptions& options, const std::string& output,
                              const Context& context);

/// What `simulate` is to do with a layer profile.
struct SimulatedPlan {
  std::string plan;     ///< file: motley.plan/1, or a pipeline of that tool
  std::string cluster;  ///< file; of a pipeline none
  int steps = 1;
  std::string trace;  ///< Chrome trace to write; "": none
};
Result<int> simulate_layers(const SimulatedPlan& asked, const control::LayerFiles& layers,
                            const Context& context);

}  // namespace motley::cli
