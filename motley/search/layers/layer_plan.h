#pragma once

#include <map>
#include <memory>
#include <string>

#include "motley/base/result.h"
#include "motley/cluster/cluster.h"
#include "motley/cost/layers/layer_graph.h"
#include "motley/cost/layers/layer_profile.h"
#include "motley/plan/optimizer.h"
#include "motley/plan/plan.h"
#include "motley/search/layers/layer_cost.h"
#include "motley/search/stages/costs/cluster_pools.h"
#include "motley/search/stages/stage_evaluator.h"

namespace motley::search {

/// A layer profile prepared for writing and pricing plans.
struct LayerModel {
  std::shared_ptr<const cost::LayerProfile> profile;
  cost::LayerGraph layers;
  std::string hash;           ///< of the graph's text; names the model in plans
  plan::Optimizer optimizer;  ///< one that needs about the profiled memory
};
/// Makes a layer model; its optimizer is adam or sgd. Errors of make_layer_graph.
Result<LayerModel> make_layer_model(cost::LayerProfile profile);

/// Writes a plan of stages as a plan of the layer graph: one region per stage, whose devices share
/// each layer. Micro-batches in flight, speeds and message times are those that the plan was priced
/// with. Samples that do not fill the last micro-batch are spread over all.
Result<plan::Plan> write_layer_plan(const PricedStagePlan& priced, const StageCosts& costs,
                                    const ClusterPools& pools, const cluster::Cluster& cluster,
                                    const LayerModel& model);

Result<std::map<std::string, LayerSeat>> find_layer_seats(const plan::Plan& plan,
                                                          const ClusterPools& pools,
                                                          const cluster::Cluster& cluster);

}  // namespace motley::search
