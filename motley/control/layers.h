#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "motley/control/clock.h"
#include "motley/control/planning.h"
#include "motley/cost/layers/layer_profile.h"
#include "motley/search/restricted/stage_spaces.h"
#include "motley/search/stages/layer_stage_costs.h"
#include "motley/search/stages/stage_search.h"

namespace motley::control {

/// A layer profile of another tool, in place of a model.
struct LayerFiles {
  std::vector<std::string> times;  ///< Sailor's form: "KIND=profile.json"
  std::string sizes;               ///< llm_info.json
  std::string model;               ///< its name in there: "OPT-350"
  std::string network;             ///< network fits; "": the cluster's links
  std::string pairs;               ///< network fits between unlike kinds
  std::string zone;                ///< the one of them that counts
  int devices_per_host = 4;        ///< of another tool's plan
  bool may_recompute = false;      ///< stages that compute forwards twice are tried
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

/// Stages, replicas and micro-batches over the devices of the cluster whose kinds the profile has
/// (search/stages/stage_search.h), or those of a restricted space; HARP's recomputes. The costs are
/// kept for whoever explains the plan.
struct StageAnswer {
  std::unique_ptr<const search::StageCosts> costs;
  search::StageOutcome outcome;
  double elapsed_s = 0;  ///< of the search
};
Result<StageAnswer> plan_stages(const LayerFiles& files, const cluster::Cluster& cluster,
                                std::int64_t global_batch, const Clock& clock,
                                std::optional<search::StageSpace> space = {});

/// Step time and memory of a pipeline plan of that tool, timed as its runtime runs it, and what was
/// measured.
struct PipelinePrediction {
  search::StagePlan plan;
  search::StagePrice price;
  std::optional<Seconds> measured;
};
Result<PipelinePrediction> simulate_pipeline(const cost::LayerProfile& profile,
                                             const std::string& plan_path, const LayerFiles& files);

}  // namespace motley::control
