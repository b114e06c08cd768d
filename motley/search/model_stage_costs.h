#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "motley/base/result.h"
#include "motley/cost/profile_cost.h"
#include "motley/graph/layer_chain.h"
#include "motley/plan/planner.h"
#include "motley/search/price/costs.h"
#include "motley/search/stages/layer_stage_costs.h"
#include "motley/search/stages/stage_costs.h"
#include "motley/synth/lower.h"

namespace motley::search {

/// StageCosts of a model's own graph: layers of its chain (graph/layer_chain.h), each stage on one
/// device. Times are the sums of what the model's instructions take alone at a micro-batch, by the
/// same cost model that prices programs; bytes are those of the graph.
class ModelStageCosts : public StageCosts {
 public:
  /// Graph, problem and costs must outlive it. Usage error where no device has times.
  static Result<std::unique_ptr<ModelStageCosts>> make(const graph::Graph& graph,
                                                       const plan::Problem& problem,
                                                       const Costs& costs);

  std::size_t layers() const override { return chain_.names.size(); }
  const std::vector<DevicePool>& pools() const override { return pools_.pools; }
  const std::vector<StageUnit>& units() const override { return units_; }
  const std::vector<std::int64_t>& micro_batches() const override { return micro_batches_; }
  bool knows(std::size_t unit, std::int64_t micro_batch) const override;
  std::vector<LayerWork> work(std::size_t unit, std::int64_t micro_batch) const override;
  std::vector<LayerBytes> bytes(std::size_t) const override { return bytes_; }
  Bytes held(std::size_t unit) const override { return held_[unit]; }
  /// As the programs' cost model prices a send.
  std::optional<Hop> hop(HopEnd from, HopEnd to, HopReach reach, Bytes bytes) const override;
  BytesPerSecond host_rate(std::size_t pool) const override;
  std::optional<std::pair<std::size_t, std::size_t>> tied() const override { return tied_; }
  const std::vector<std::string>& notes() const override { return notes_; }

  const graph::LayerChain& chain() const { return chain_; }
  DeviceId device(std::size_t pool, int host, int slot) const;
  /// Plans again with less memory of a pool, where what a layer holds was underestimated.
  void take_memory(std::size_t pool, double part);

 private:
  ModelStageCosts(const graph::Graph& graph, const plan::Problem& problem, const Costs& costs)
      : graph_(graph), problem_(problem), model_(costs.model(*problem.cluster)) {}
  void find_pools();
  void find_bytes();
  std::optional<std::vector<LayerWork>> time(std::size_t unit, std::int64_t micro_batch) const;

  const graph::Graph& graph_;
  const plan::Problem& problem_;
  cost::ProfileCost model_;
  graph::LayerChain chain_;
  ClusterPools pools_;
  std::vector<StageUnit> units_;
  std::vector<Bytes> held_;  // by unit
  std::vector<std::int64_t> micro_batches_;
  std::vector<LayerBytes> bytes_;
  std::vector<std::int64_t> parameter_elements_;  // by layer
  std::optional<std::pair<std::size_t, std::size_t>> tied_;
  std::vector<std::string> notes_;
  mutable std::map<std::pair<std::size_t, std::int64_t>, std::optional<std::vector<LayerWork>>>
      times_;
  mutable std::map<std::int64_t, std::optional<program::DeviceProgram>> programs_;
  mutable std::map<std::tuple<std::size_t, std::size_t, HopReach, std::int64_t>, std::optional<Hop>>
      hops_;
};

}  // namespace motley::search
