#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "motley/plan/planner.h"
#include "motley/search/model_stages/layered_graph.h"
#include "motley/search/split/planner_inputs.h"
#include "motley/search/stages/costs/cluster_pools.h"
#include "motley/search/stages/costs/mixed_units.h"
#include "motley/search/stages/stage_plan.h"

namespace motley::search {

class StageWays;

/// Devices that may compute a stage of a model together, with a way to share its operators each,
/// and the memory that plans may use of them.
class ModelUnits {
 public:
  /// Problem and graph must outlive it.
  ModelUnits(ClusterPools pools, const plan::Problem& problem, const LayeredGraph& graph);
  /// Adds units of identical devices, and mixed ones if `kinds` has such.
  void find(const PlannerInputs& inputs, UnitKinds kinds);
  /// Offers mixed units, too. False if there are none but offered.
  bool offer_mixed();

  std::size_t size() const { return ways_.size(); }
  const StageUnit& operator[](std::size_t unit) const { return all_[unit]; }
  /// StageCosts::units().
  const std::vector<StageUnit>& offered() const { return offered_; }
  const std::vector<DevicePool>& pools() const { return pools_.pools; }
  const std::vector<DeviceId>& devices_of(std::size_t pool) const { return pools_.devices[pool]; }
  const plan::Problem& problem() const { return problem_; }
  /// StageCosts::micro_batches(): powers of two.
  const std::vector<std::int64_t>& micro_batches() const { return micro_batches_; }
  /// Those whose programs are simulated on the unit: of several devices, whose times are found for
  /// many ways, three.
  std::vector<std::int64_t> simulated(std::size_t unit) const;

  /// How the unit's devices share all operators of the shown graph.
  const plan::Region& ways(std::size_t unit) const { return ways_[unit]; }
  /// Does it gather its parameters again for each pass?
  GatheredParameters gathers(std::size_t unit) const;
  /// The first device of each of the unit's parts, among its devices.
  std::vector<std::size_t> first_ranks(std::size_t unit) const;
  std::vector<DeviceId> devices(const PlannedStage& stage) const;

  /// What each member holds whatever it computes.
  Bytes held(std::size_t unit) const { return held_[unit]; }
  /// StageCosts::memory(). Of a mixed unit, of the device of whose memory the least part may be
  /// used.
  Bytes memory(std::size_t unit) const;
  /// The unit's smallest memory, over that of a device of one of its pools.
  double scale(const StageUnit& unit, std::size_t pool) const;
  /// The same by device of the unit.
  std::vector<double> scales(std::size_t unit) const;
  /// Lets plans use only a part of a pool's memory, or all of every pool's again.
  void take_memory(std::size_t pool, double part);
  void restore_memory();

 private:
  std::unique_ptr<StageWays> find_ways(const PlannerInputs& inputs, int widest) const;
  void add_identical(const PlannerInputs& inputs);
  void add_mixed(const PlannerInputs& inputs);
  void add(StageUnit unit, plan::Region ways);
  Bytes find_copies() const;

  const plan::Problem& problem_;
  const LayeredGraph& graph_;
  ClusterPools pools_;
  std::vector<Bytes> memories_;  // by pool: of a device, whatever plans may use of it
  std::vector<std::int64_t> micro_batches_;
  std::vector<StageUnit> all_, offered_;  // the first of them
  std::vector<plan::Region> ways_;        // by unit
  std::vector<Bytes> held_;               // by unit
};

}  // namespace motley::search
