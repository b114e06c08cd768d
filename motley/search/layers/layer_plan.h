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

/// What a plan of a layer profile is written and priced with.
struct LayerModel {
  std::shared_ptr<const cost::LayerProfile> profile;
  cost::LayerGraph layers;
  std::string hash;           ///< of the graph's text, as a plan names its model
  plan::Optimizer optimizer;  ///< that holds about as much as the profile says
};
/// The optimizer is adam, or sgd with momentum or without. Errors of make_layer_graph.
Result<LayerModel> make_layer_model(cost::LayerProfile profile);

/// A plan of stages as any plan of the graph of layers: a region for each stage, whose devices
/// share each layer; how many micro-batches are under way in a stage, how fast it is and how long
/// its messages take are those that the plan was priced with. What is left over of a replica's
/// samples is spread over its micro-batches.
Result<plan::Plan> write_layer_plan(const PricedStagePlan& priced, const StageCosts& costs,
                                    const ClusterPools& pools, const cluster::Cluster& cluster,
                                    const LayerModel& model);

/// Where the plan's devices are.
Result<std::map<std::string, LayerSeat>> find_layer_seats(const plan::Plan& plan,
                                                          const ClusterPools& pools,
                                                          const cluster::Cluster& cluster);

}  // namespace motley::search
