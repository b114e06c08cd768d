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

/// Where a device of a program is.
struct LayerSeat {
  std::size_t pool = 0;
  int host = 0;    ///< of the cluster
  int degree = 1;  ///< devices of its region, which send and receive together
  int region = 0;  ///< among those of all replicas
};

/// Prices programs of a profile's layers (cost/layers/layer_graph.h): what search/stages prices
/// plans by, at the interface that every program is simulated over.
///
/// What a program computes takes what the layers were profiled to take (profiled_layers.h).
///
/// A send goes beside those of the region's other devices, at their common rate (HopCosts), over
/// the sending host's way out and the receiving host's way in. A collective goes along a ring of
/// its hosts, each of which it enters once: a flow of (n - 1) / n bytes out of each, twice that of
/// an all-reduce; inside one host n devices take n - 1 rounds, in each of which all send a part.
class LayerCost : public cost::CostModel {
 public:
  /// `rows`: of the graph. Seats by name of device.
  LayerCost(std::shared_ptr<const cost::LayerProfile> profile, std::int64_t rows,
            std::vector<DevicePool> pools, std::shared_ptr<const HopCosts> hops,
            const StageRuntime& runtime, std::map<std::string, LayerSeat> seats);

  /// Errors of cost::ProfiledLayers::find.
  Result<Times> times(const program::DeviceProgram& program) const override;
  Result<Seconds> collective_time(std::string_view op, Bytes bytes,
                                  const std::vector<std::string>& devices) const override;
  /// Usage error (search.stages) where there is no link.
  Result<cost::Transfer> transfer(std::string_view op, Bytes bytes,
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
  std::map<std::pair<int, int>, std::int32_t> links_;  // host, out of it or into it
  std::vector<double> capacities_;
};

}  // namespace motley::search
