#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "motley/base/result.h"
#include "motley/cost/cost_model.h"
#include "motley/cost/layers/layer_profile.h"
#include "motley/cost/layers/profiled_layers.h"
#include "motley/search/stages/costs/layer_stage_costs.h"

namespace motley::search {

/// The place of a program's device.
struct LayerSeat {
  std::size_t pool = 0;
  int host = 0;    ///< id in the cluster
  int degree = 1;  ///< devices of its region, which send and receive together
  int region = 0;  ///< index over all replicas
};

/// Prices programs of a profile's layers (cost/layers/layer_graph.h) with the costs of
/// search/stages, as a cost model for the simulator. Compute times are those profiled
/// (profiled_layers.h).
///
/// A send runs beside those of the region's other devices, at their common rate (HopCosts), over
/// the sending host's outgoing and the receiving host's incoming link. A collective follows a ring
/// that enters each host once: a flow of (n - 1) / n bytes out of each, twice that for an
/// all-reduce. Inside one host, n devices take n - 1 rounds, each of which sends a part from every
/// device.
class LayerCost : public cost::CostModel {
 public:
  /// `rows`: of the graph. `seats`: by device name.
  LayerCost(std::shared_ptr<const cost::LayerProfile> profile, std::int64_t rows,
            std::vector<DevicePool> pools, std::shared_ptr<const HopCosts> hops,
            const StageRuntime& runtime, std::map<std::string, LayerSeat> seats);

  /// Returns errors of cost::ProfiledLayers::find.
  Result<Times> times(const program::DeviceProgram& program) const override;
  Result<Seconds> collective_time(std::string_view op, Bytes bytes,
                                  const std::vector<std::string>& devices) const override;
  /// Usage error (search.stages) if there is no link.
  Result<cost::Transfer> transfer(std::string_view op, const cost::ExchangeSize& size,
                                  const std::vector<std::string>& devices) const override;
  std::vector<double> link_capacities() const override { return capacities_; }

 private:
  struct HostMembers {
    std::size_t pool = 0;
    int host = 0, members = 0;
  };
  Result<const LayerSeat*> seat(const std::string& device) const;
  Result<Hop> hop(HopEnd from, HopEnd to, HopReach reach, Bytes bytes) const;
  Result<cost::Transfer> send(Bytes bytes, const LayerSeat& from, const LayerSeat& to) const;
  Result<cost::Transfer> ring(double rounds, Bytes bytes, const std::vector<HostMembers>& hosts,
                              int degree) const;
  std::int32_t link(int host, int direction) const { return links_.at({host, direction}); }

  std::map<std::string, cost::ProfiledLayers> layers_;  // by kind
  std::vector<DevicePool> pools_;
  std::shared_ptr<const HopCosts> hops_;
  StageRuntime runtime_;
  std::map<std::string, LayerSeat, std::less<>> seats_;
  std::map<std::pair<int, int>, std::int32_t> links_;  // by host and direction
  std::vector<double> capacities_;
};

}  // namespace motley::search
