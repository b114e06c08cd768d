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

/// `plan` with a layer profile in place of an exported model.
Result<int> plan_layers(const PlanningOptions& options, const LayerOptions& layers,
                        const Context& context);

/// `simulate` with a layer profile and a pipeline plan of that tool.
Result<int> simulate_layers(const std::string& plan_path, const LayerOptions& layers,
                            const Context& context);

}  // namespace motley::cli
