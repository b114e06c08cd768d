#include "motley/search/layers/layer_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "motley/base/random.h"
#include "motley/graph/graph_text.h"
#include "motley/graph/work.h"
#include "motley/plan/pass_order.h"
#include "motley/search/stages/stage_lag.h"

namespace motley::search {
namespace {

/// Factor of a layer's rule that devices split; comes after samples and input width.
constexpr int kRows = 2;

/// Infers the optimizer: weights, gradients and states are four times the weights for Adam, three
/// for sgd with momentum.
plan::Optimizer find_optimizer(const cost::LayerProfile& profile) {
  double states = 0, gradients = 0;
  for (const cost::LayerSize& size : profile.sizes.begin()->second) {
    states += static_cast<double>(size.states.value);
    gradients += static_cast<double>(size.gradients.value);
  }
  if (states > 3.5 * gradients) return plan::default_optimizer(plan::OptimizerKind::kAdam);
  plan::Optimizer sgd = plan::default_optimizer(plan::OptimizerKind::kSgd);
  if (states > 2.5 * gradients) sgd.momentum = 0.9;
  return sgd;
}

class LayerPlanWriter {
 public:
  LayerPlanWriter(const PricedStagePlan& priced, const StageCosts& costs, const ClusterPools& pools,
                  const cluster::Cluster& cluster, const LayerModel& model)
      : priced_(priced), costs_(costs), pools_(pools), cluster_(cluster), model_(model) {}

  Result<plan::Plan> write() {
    plan::Plan plan;
    plan.model_hash = model_.hash;
    plan.cluster_hash = cluster::cluster_hash(cluster_);
    plan.recipe.optimizer = model_.optimizer;
    for (std::size_t r = 0; r < priced_.plan.replicas.size(); ++r) {
      const StageReplica& replica = priced_.plan.replicas[r];
      plan::Replica made;
      made.samples = replica.samples;
      plan.global_batch += replica.samples;
      made.micro_batches = static_cast<std::int64_t>(micro_batch_sizes(replica).size());
      for (std::size_t s = 0; s < replica.stages.size(); ++s) {
        made.regions.push_back(write_region(replica, s));
        if (replica.stages.size() > 1) {
          made.regions.back().ahead = priced_.price.spans[r][s].in_flight;
          made.regions.back().lag = find_lag(sums_, replica, s);
        }
      }
      if (replica.stages.size() == 1) made.regions.front().covers.clear();
      plan.replicas.push_back(std::move(made));
    }
    scale_speeds(1e4, plan);
    MOTLEY_RETURN_IF_ERROR(plan::verify_plan(plan, model_.hash, cluster_));
    return plan;
  }

 private:
  std::int64_t layers() const { return static_cast<std::int64_t>(costs_.layers()); }

  /// Returns the stage's operators in the graph (layer_graph.h).
  std::vector<plan::OpRange> find_covers(const PlannedStage& stage) const {
    const auto first = static_cast<std::int64_t>(stage.first);
    const auto end = static_cast<std::int64_t>(stage.end);
    const std::int64_t backward = 2 * layers() + 1;
    std::vector<plan::OpRange> covers{{2 * first, 2 * end},
                                      {backward + layers() - end, backward + layers() - first}};
    if (end == layers()) covers = {{2 * first, covers[1].end}};
    const auto ops = static_cast<std::int64_t>(model_.layers.graph.ops.size());
    if (first == 0 && ops > covers.back().end) covers.back().end = ops;
    return covers;
  }

  plan::Region write_region(const StageReplica& replica, std::size_t s) const {
    const PlannedStage& stage = replica.stages[s];
    const StageUnit& unit = costs_.units()[stage.unit];
    const std::vector<DeviceId>& devices = pools_.devices[unit.pool()];
    const int first = stage.host * pools_.pools[unit.pool()].per_host + stage.slot;
    plan::Region region;
    region.devices.assign(devices.begin() + first, devices.begin() + first + unit.degree());
    region.shares.assign(region.devices.size(), 1.0);
    region.covers = find_covers(stage);
    if (unit.degree() > 1) share(region);
    if (unit.recomputes)
      for (auto layer = static_cast<std::int64_t>(stage.first);
           layer < static_cast<std::int64_t>(stage.end); ++layer)
        region.recomputes.push_back({2 * layer, 2 * layer + 1});
    region.speed = find_speed(replica, stage, unit.degree(), region.covers);
    return region;
  }

  /// Shares each layer's rows, and the parameters that have rows, over the devices.
  void share(plan::Region& region) const {
    const graph::Graph& graph = model_.layers.graph;
    std::map<std::string, graph::Form> kept;
    for (const plan::OpRange& range : region.covers)
      for (std::int64_t i = range.first; i < range.end; ++i) {
        const graph::Op& op = graph.op(OpId(i));
        const bool is_layer = op.name == cost::kLayer || op.name == cost::kLayerBackward;
        region.operators.push_back({is_layer ? kRows : -1});
        if (!is_layer) continue;
        graph::for_each_value(op.arguments, [&](ValueId id) {
          const graph::Value& value = graph.value(id);
          if (value.role == graph::ValueRole::kParameter && value.shape.size() == 2)
            kept[value.name] = {graph::FormKind::kSharded, 0, 1, model_.layers.rows, 1};
        });
      }
    for (const auto& [name, form] : kept) region.parameters.push_back({name, form});
  }

  /// Returns the region's speed per device: its operators' work over their time.
  double find_speed(const StageReplica& replica, const PlannedStage& stage, int degree,
                    const std::vector<plan::OpRange>& covers) const {
    double work = 0, takes = 0;
    for (const plan::OpRange& range : covers)
      for (std::int64_t i = range.first; i < range.end; ++i)
        work += plan::order_seconds(
            graph::op_work(model_.layers.graph, OpId(i), {{"batch", replica.micro_batch}}));
    const std::vector<LayerWork> times = costs_.work(stage.unit, replica.micro_batch);
    for (std::size_t layer = stage.first; layer < stage.end; ++layer)
      takes += times[layer].forward.value + times[layer].backward.value;
    return work / (takes * degree);
  }

  const PricedStagePlan& priced_;
  const StageCosts& costs_;
  const StageSums sums_{costs_};
  const ClusterPools& pools_;
  const cluster::Cluster& cluster_;
  const LayerModel& model_;
};

}  // namespace

Result<LayerModel> make_layer_model(cost::LayerProfile profile) {
  LayerModel model;
  MOTLEY_ASSIGN(model.layers, cost::make_layer_graph(profile));
  model.optimizer = find_optimizer(profile);
  model.profile = std::make_shared<const cost::LayerProfile>(std::move(profile));
  model.hash = hash_hex(graph::print_graph(model.layers.graph));
  return model;
}

Result<plan::Plan> write_layer_plan(const PricedStagePlan& priced, const StageCosts& costs,
                                    const ClusterPools& pools, const cluster::Cluster& cluster,
                                    const LayerModel& model) {
  return LayerPlanWriter(priced, costs, pools, cluster, model).write();
}

Result<std::map<std::string, LayerSeat>> find_layer_seats(const plan::Plan& plan,
                                                          const ClusterPools& pools,
                                                          const cluster::Cluster& cluster) {
  std::map<DeviceId, LayerSeat> places;
  for (std::size_t pool = 0; pool < pools.pools.size(); ++pool)
    for (std::size_t i = 0; i < pools.devices[pool].size(); ++i)
      places[pools.devices[pool][i]] = {
          pool, pools.pools[pool].first_host + static_cast<int>(i) / pools.pools[pool].per_host};
  std::map<std::string, LayerSeat> seats;
  int number = 0;
  for (const plan::Replica& replica : plan.replicas)
    for (const plan::Region& region : replica.regions) {
      for (const DeviceId device : region.devices) {
        LayerSeat seat = places.at(device);
        seat.degree = static_cast<int>(region.devices.size());
        seat.region = number;
        seats[cluster.device(device).name] = seat;
      }
      ++number;
    }
  return seats;
}

}  // namespace motley::search
