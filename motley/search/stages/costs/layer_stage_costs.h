#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "motley/base/result.h"
#include "motley/cluster/cluster.h"
#include "motley/cost/layers/layer_profile.h"
#include "motley/cost/layers/stage_network.h"
#include "motley/search/stages/costs/cluster_pools.h"
#include "motley/search/stages/costs/stage_costs.h"

namespace motley::search {

class HopCosts {
 public:
  virtual ~HopCosts() = default;
  virtual std::optional<Hop> hop(HopEnd from, HopEnd to, HopReach reach, Bytes bytes) const = 0;
  virtual BytesPerSecond host_rate(std::size_t pool) const = 0;
};

/// Returns hop costs from measured network fits (cost/layers/stage_network.h). A message is divided
/// into min(senders, receivers) equal parts. It uses the curve of the most devices up to that
/// number or, if all curves are of more devices, a device's share of the least one's.
std::unique_ptr<HopCosts> fitted_hops(const cost::StageNetwork& network,
                                      const std::vector<DevicePool>& pools);

/// Returns hop costs by a cluster file's links between hosts, and nominal rates inside one.
std::unique_ptr<HopCosts> cluster_hops(const cluster::Cluster& cluster, const ClusterPools& pools);

/// Properties of a runtime, which no layer profile has: they need a source or stay zero.
struct StageRuntime {
  Bytes context;                 ///< driver, libraries and communicators, on each device
  bool copies_gradients = true;  ///< into one flat buffer for their exchange, as Megatron does
  bool may_recompute = false;    ///< whether stages that recompute are tried
  /// Members send a stage's whole output each, instead of parts that the receivers exchange.
  bool sends_whole = false;
  bool messages_block = false;  ///< StageCosts::messages_block
};

/// StageCosts of a layer profile on pools of devices. Units: every degree of tensor parallelism
/// profiled for the pool's kind that fits a host. Micro-batches: those profiled on some unit; each
/// unit knows those up to twice its largest (cost::layer_times).
class LayerStageCosts : public StageCosts {
 public:
  /// Usage error if no pool has a profiled kind, or a layer's output is unknown.
  static Result<LayerStageCosts> make(const cost::LayerProfile& profile,
                                      std::vector<DevicePool> pools,
                                      std::shared_ptr<const HopCosts> hops,
                                      const StageRuntime& runtime = {});

  std::size_t layers() const override { return layers_; }
  const std::vector<DevicePool>& pools() const override { return pools_; }
  const std::vector<StageUnit>& units() const override { return units_; }
  const std::vector<std::int64_t>& micro_batches() const override { return micro_batches_; }
  bool knows(std::size_t unit, std::int64_t micro_batch) const override;
  std::vector<LayerWork> work(std::size_t unit, std::int64_t micro_batch) const override;
  std::vector<LayerBytes> bytes(std::size_t unit) const override;
  Bytes held(std::size_t) const override { return runtime_.context; }
  std::optional<Hop> hop(HopEnd from, HopEnd to, HopReach reach, Bytes bytes) const override;
  bool messages_block() const override { return runtime_.messages_block; }
  BytesPerSecond host_rate(std::size_t pool) const override { return hops_->host_rate(pool); }
  std::optional<std::pair<std::size_t, std::size_t>> tied() const override { return profile_.tied; }
  const std::vector<std::string>& notes() const override { return notes_; }

  std::optional<std::size_t> find_unit(const std::string& kind, int degree) const;

 private:
  void add_units(std::size_t pool);
  void note(std::string sentence);

  cost::LayerProfile profile_;
  std::vector<DevicePool> pools_;
  std::shared_ptr<const HopCosts> hops_;
  StageRuntime runtime_;
  std::size_t layers_ = 0;
  std::vector<StageUnit> units_;
  std::vector<std::int64_t> largest_;  // known micro-batch, by unit
  std::vector<std::int64_t> micro_batches_;
  std::vector<std::string> notes_;
};

}  // namespace motley::search
