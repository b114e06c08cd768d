#pragma once

#include <string>

#include "motley/cli/options/planning_options.h"
#include "motley/control/planning/layers.h"

namespace motley::cli {

/// Describes the error of a layer profile's predictions (docs/benchmarks.md, "Accuracy").
std::string layers_note(const std::string& model);

bool finds_layer_stages(const PlanningOptions& options);

/// Runs `plan` for stages over a layer profile; `output`: plan file to write, or "".
Result<int> plan_layer_stages(const PlanningOptions& options, const std::string& output,
                              const Context& context);

struct SimulatedPlan {
  std::string plan;     ///< file: motley.plan/1, or a pipeline of the other tool
  std::string cluster;  ///< file; none for a pipeline
  int steps = 1;
  std::string trace;
};
Result<int> simulate_layers(const SimulatedPlan& asked, const control::LayerFiles& layers,
                            const Context& context);

}  // namespace motley::cli
