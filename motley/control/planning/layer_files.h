#pragma once

#include <memory>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/cost/layers/stage_network.h"
#include "motley/search/layers/layer_plan.h"

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

  bool is_given() const { return !times.empty() || !metis.empty(); }
};

/// Reads either form. Usage errors name file and key.
Result<std::shared_ptr<const search::LayerModel>> read_layers(const LayerFiles& files);

/// Reads the network fits, which are given.
Result<cost::StageNetwork> read_network(const LayerFiles& files);

}  // namespace motley::control
