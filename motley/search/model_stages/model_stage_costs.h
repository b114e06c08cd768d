#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "motley/base/result.h"
#include "motley/search/model_stages/layer_memory.h"
#include "motley/search/model_stages/layer_times.h"
#include "motley/search/model_stages/send_times.h"
#include "motley/search/model_stages/stage_regions.h"

namespace motley::search {

/// What a search of stages supposes of all layers.
struct LayerAssumption {
  /// How much is recomputed: for what layers keep, and for what they take.
  Recompute keeps = Recompute::kNothing, takes = Recompute::kNothing;
  bool shares_states = false;  ///< half of the optimizer's states, as of two replicas
  bool operator==(const LayerAssumption&) const = default;
};

/// StageCosts of a model's own graph: its pieces as layers, each stage on one device or on several
/// of a host. Its parts say what the pieces take, hold and send, and how a stage is a region.
class ModelStageCosts : public StageCosts {
 public:
  /// Graph, costs (not null) and problem must outlive it. Usage error if no device has times.
  static Result<std::unique_ptr<ModelStageCosts>> make(const PlannerInputs& inputs,
                                                       const plan::Problem& problem,
                                                       UnitKinds kinds = UnitKinds::kSeveral);

  const ModelUnits& model_units() const { return units_; }
  const FinerLayers& pieces() const { return pieces_.cut; }  ///< the layers here
  const LayerTimes& times() const { return times_; }
  const LayerMemory& layer_memory() const { return memory_; }
  const StageRegions& regions() const { return regions_; }
  /// No plan of stages takes less (least_step.h).
  Seconds least_step() const { return least_step_; }

  /// Offers units of several kinds; all else is as at first. False if there are none but offered.
  bool offer_mixed();
  /// Plans with so much recomputed from here on.
  void assume(const LayerAssumption& assumption) { assumed_ = assumption; }
  const LayerAssumption& assumption() const { return assumed_; }
  /// Plans with less memory of a pool, where what a layer holds was underestimated; or with all.
  void take_memory(std::size_t pool, double part) { units_.take_memory(pool, part); }
  void restore_memory() { units_.restore_memory(); }

  std::size_t layers() const override { return pieces_.size(); }
  const std::vector<DevicePool>& pools() const override { return units_.pools(); }
  const std::vector<StageUnit>& units() const override { return units_.offered(); }
  const std::vector<std::int64_t>& micro_batches() const override { return units_.micro_batches(); }
  bool knows(std::size_t unit, std::int64_t micro_batch) const override {
    return times_.knows(unit, micro_batch);
  }
  std::vector<LayerWork> work(std::size_t unit, std::int64_t micro_batch) const override {
    return times_.work(unit, micro_batch, assumed_.takes);
  }
  std::vector<LayerBytes> bytes(std::size_t unit) const override {
    return assumed_.shares_states ? memory_.bytes_sharing(unit, assumed_.keeps)
                                  : memory_.bytes(unit, assumed_.keeps);
  }
  Bytes held(std::size_t unit) const override { return units_.held(unit); }
  Bytes memory(std::size_t unit) const override { return units_.memory(unit); }
  std::optional<Hop> hop(HopEnd from, HopEnd to, HopReach reach, Bytes bytes) const override {
    return sends_.hop(from.pool, to.pool, reach, bytes);
  }
  BytesPerSecond host_rate(std::size_t pool) const override { return sends_.host_rate(pool); }
  std::optional<std::pair<std::size_t, std::size_t>> tied() const override {
    return pieces_.parameters.tied;
  }
  const std::vector<std::string>& notes() const override { return notes_; }

 private:
  ModelStageCosts(ClusterPools pools, const PlannerInputs& inputs, const plan::Problem& problem,
                  UnitKinds kinds);
  bool has_times() const;

  LayeredGraph graph_;
  ModelUnits units_;
  UnitPrograms programs_;
  ModelPieces pieces_;
  LayerTimes times_;
  LayerMemory memory_;
  SendTimes sends_;
  StageRegions regions_;
  LayerAssumption assumed_;
  Seconds least_step_;
  std::vector<std::string> notes_;  // none
};

}  // namespace motley::search
