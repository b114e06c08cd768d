#pragma once

#include <memory>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/cost/layers/stage_network.h"
#include "motley/search/layers/layer_plan.h"

namespace motley::control {

/// Another tool's layer profile, which replaces a model.
struct LayerFiles {
  std::vector<std::string> times;  ///< Sailor's form: "KIND=profile.json"
  std::string sizes;
  std::string model;    ///< its name in that file: "OPT-350"
  std::string network;  ///< network fits; "": use the cluster's links
  std::string pairs;    ///< network fits between different kinds
  std::string zone;
  int devices_per_host = 4;        ///< in another tool's plan
  bool may_recompute = false;      ///< also try stages that recompute their forward pass
  std::vector<std::string> metis;  ///< Metis' form: one file per kind, degree and micro-batch

  bool is_given() const { return !times.empty() || !metis.empty(); }
};

Result<std::shared_ptr<const search::LayerModel>> read_layers(const LayerFiles& files);

Result<cost::StageNetwork> read_network(const LayerFiles& files);

}  // namespace motley::control
