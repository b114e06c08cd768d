#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "motley/control/clock.h"
#include "motley/control/planning.h"
#include "motley/cost/layers/layer_profile.h"
#include "motley/cost/layers/pipeline_step.h"

namespace motley::control {

/// A layer profile of another tool, in place of a model.
struct LayerFiles {
  std::vector<std::string> times;  ///< Sailor's form: "KIND=profile.json"
  std::string sizes;               ///< llm_info.json
  std::string model;               ///< its name in there: "OPT-350"
  std::string network;             ///< network fits, for pipelines
  int devices_per_host = 4;
  std::vector<std::string> metis;  ///< Metis' form: one file a kind, degree and micro-batch
};

/// Reads either form. Usage errors name file and key.
Result<cost::LayerProfile> read_layers(const LayerFiles& files);

/// The batch split over the devices of the cluster whose kinds the profile has. Only the choices
/// of the search count; nothing is priced from a store.
struct LayerAnswer {
  plan::PlanOutcome outcome;
  double elapsed_s = 0;  ///< of the search
};
Result<LayerAnswer> plan_layers(const cost::LayerProfile& profile, const cluster::Cluster& cluster,
                                std::int64_t global_batch, const PlanChoices& choices,
                                const Clock& clock);

/// Step time and memory of every stage of a pipeline plan of that tool, and what it measured.
struct PipelinePrediction {
  cost::PipelineStep step;
  std::optional<Seconds> measured;
};
Result<PipelinePrediction> simulate_pipeline(const cost::LayerProfile& profile,
                                             const std::string& plan_path, const LayerFiles& files);

}  // namespace motley::control
