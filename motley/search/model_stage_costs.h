#pragma once

#include <array>
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
#include "motley/program/program.h"
#include "motley/search/finer_layers.h"
#include "motley/search/recompute_choice.h"
#include "motley/search/split/planner_inputs.h"
#include "motley/search/spmd/depths.h"
#include "motley/search/stages/costs/layer_stage_costs.h"
#include "motley/search/stages/costs/mixed_units.h"
#include "motley/search/stages/costs/stage_costs.h"
#include "motley/search/stages/stage_plan.h"
#include "motley/synth/ranks/sharded_plan.h"
#include "motley/trace/trace.h"

namespace motley::search {

class StageWays;

/// StageCosts of a model's own graph, in pieces of its layers (finer_layers.h), each stage on one
/// device or on several of a host (mixed_units.h: of several kinds), in the ways of stage_ways.h.
/// Times are those of the model's program for one micro-batch on the unit alone, simulated: what
/// its compute lane does and waits for (of the device that is longest at it), piece by piece, and
/// what adds its gradients to those of others (adding_up.h). So are bytes (layer_holds.h; of
/// unlike devices the largest parts of their memories, times the smallest memory), and what both
/// are if forward passes are done again (recompute_choice.h). Of many layers that are identical a
/// few are looked at (graph/short_graph.h).
class ModelStageCosts : public StageCosts {
 public:
  /// Graph, costs (not null) and problem must outlive it. Usage error if no device has times.
  static Result<std::unique_ptr<ModelStageCosts>> make(const PlannerInputs& inputs,
                                                       const plan::Problem& problem,
                                                       UnitKinds kinds = UnitKinds::kSeveral);
  /// Offers units of several kinds; all else is as at first. False if there are none but offered.
  bool offer_mixed();

  std::size_t layers() const override { return pieces_.pieces.names.size(); }
  const std::vector<DevicePool>& pools() const override { return pools_.pools; }
  const std::vector<StageUnit>& units() const override { return offered_; }
  const std::vector<std::int64_t>& micro_batches() const override { return micro_batches_; }
  bool knows(std::size_t unit, std::int64_t micro_batch) const override;
  std::vector<LayerWork> work(std::size_t unit, std::int64_t micro_batch) const override;
  std::vector<LayerBytes> bytes(std::size_t unit) const override;
  Bytes held(std::size_t unit) const override { return held_[unit]; }
  Bytes memory(std::size_t unit) const override;
  /// As the programs' cost model prices a send.
  std::optional<Hop> hop(HopEnd from, HopEnd to, HopReach reach, Bytes bytes) const override;
  BytesPerSecond host_rate(std::size_t pool) const override;
  std::optional<std::pair<std::size_t, std::size_t>> tied() const override { return tied_; }
  const std::vector<std::string>& notes() const override { return notes_; }

  const FinerLayers& pieces() const { return pieces_; }  ///< the layers here
  /// No plan of stages takes less, wherever it is cut: the pieces' work alone, spread over all
  /// devices in any parts, at the micro-batch at which it takes least.
  Seconds least_step() const;
  std::vector<DeviceId> devices(const PlannedStage& stage) const;
  /// By device of the unit: its bytes are so many of those that bytes() and held() speak of.
  std::vector<double> scales(std::size_t unit) const;
  /// The stage as a region of a plan; `again`: how much is, by its layers (FinerLayers::parts).
  plan::Region region(const PlannedStage& stage, const std::vector<Recompute>& again) const;
  /// How fast the stage's devices are, by what its operators take on some device
  /// (plan/pass_order.h) beside what they take there.
  double speed(const PlannedStage& stage, std::int64_t micro_batch) const;
  /// The part of its layers' time for which the unit waits for exchanges, at most; 0: not known.
  double waiting(std::size_t unit) const;
  /// By layer: adding the gradients of a micro-batch to those before, which is in work().
  const std::vector<Seconds>& adding_up(std::size_t unit) const;
  /// What they take if so much is done again; the unit knows the micro-batch.
  std::vector<LayerWork> work_of(std::size_t unit, std::int64_t micro_batch, Recompute how) const;
  /// What each layer holds if so much of it is done again.
  const std::vector<LayerBytes>& bytes_of(std::size_t unit, Recompute how) const;
  /// Plans again with less memory of a pool, where what a layer holds was underestimated.
  void take_memory(std::size_t pool, double part);
  /// From here on layers keep what they would, and take the time, if so much is done again.
  void recompute(Recompute keeps, Recompute takes);
  /// From here on layers have half of the states, as of two replicas, and pools all their memory.
  void share_states();

 private:
  using LayerWorks = std::array<std::vector<LayerWork>, kRecomputes.size()>;  // by Recompute

  ModelStageCosts(const PlannerInputs& inputs, const plan::Problem& problem);
  std::unique_ptr<StageWays> find_ways(int widest) const;
  void add_identical_units();
  void add_mixed_units();
  void find_pieces();
  void add_unit(StageUnit unit, plan::Region ways);
  double scale(std::size_t unit, std::size_t pool) const;
  void find_tied();
  std::vector<std::int64_t> simulated(std::size_t unit) const;
  std::vector<LayerBytes> find_bytes(std::size_t unit, Recompute how) const;
  std::vector<std::size_t> first_ranks(std::size_t unit) const;  // of its devices, by part
  program::Program named(std::size_t unit, program::Program program) const;
  Result<synth::RuledSharding> split(const plan::Region& ways, std::int64_t micro_batch) const;
  const std::optional<program::Program>& lower(std::size_t unit, std::int64_t micro_batch) const;
  std::optional<LayerWorks> time(std::size_t unit, std::int64_t micro_batch) const;
  LayerWorks spread(std::size_t unit, const program::Program& program, std::size_t device,
                    const trace::Trace& trace) const;
  bool gathers_again(std::size_t unit) const;
  const std::vector<char>& once(std::size_t unit) const;  // by operator: a step has it once

  const PlannerInputs& inputs_;
  const graph::Graph& graph_;
  const plan::Problem& problem_;
  cost::ProfileCost model_;
  graph::LayerChain chain_;               // of whole layers
  std::shared_ptr<const Depths> depths_;  // null: layers are few or not alike
  graph::ShortGraph alone_;               // all of the graph, where that is looked at
  const graph::ShortGraph& short_;        // what is looked at
  FinerLayers pieces_;
  ClusterPools pools_;
  std::vector<Bytes> memories_;             // by pool: of a device, whatever a plan may use of it
  std::vector<StageUnit> units_, offered_;  // all, and the first of them
  std::vector<plan::Region> ways_;          // by unit, of the short graph
  std::vector<char> once_;                  // by operator: a step has it once
  std::vector<char> once_gathering_;        // the same where units gather again
  std::map<Recompute, std::vector<char>> done_again_;  // by operator (find_done_again)
  std::vector<Bytes> held_;                            // by unit
  std::vector<std::int64_t> micro_batches_;
  Recompute keeps_ = Recompute::kNothing, takes_ = Recompute::kNothing;
  bool are_states_shared_ = false;
  std::vector<double> parameter_bytes_;  // by layer
  std::vector<Bytes> outputs_;           // by layer: of a sample
  std::optional<std::pair<std::size_t, std::size_t>> tied_;
  std::vector<std::string> notes_;
  mutable std::map<std::pair<std::size_t, Recompute>, std::vector<LayerBytes>> bytes_;
  mutable std::map<std::pair<std::size_t, std::int64_t>, std::optional<LayerWorks>> times_;
  mutable std::map<std::size_t, double> waiting_;                      // by unit
  mutable std::map<std::size_t, std::vector<Seconds>> adding_up_;      // by unit, then layer
  mutable std::map<std::int64_t, std::vector<double>> order_seconds_;  // by micro-batch, then layer
  /// Of the first devices of each kind of the first unit of the same ways, by it and micro-batch.
  mutable std::map<std::pair<std::size_t, std::int64_t>, std::optional<program::Program>> programs_;
  mutable std::map<std::tuple<std::size_t, std::size_t, HopReach, std::int64_t>, std::optional<Hop>>
      hops_;
};

}  // namespace motley::search
