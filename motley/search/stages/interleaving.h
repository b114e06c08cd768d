#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "motley/search/stages/stage_evaluator.h"
#include "motley/search/stages/stage_plan.h"

namespace motley::search {

/// Plans in which the devices of a pipeline have several stages each, in turns (Megatron-LM's
/// interleaved stages, Narayanan et al., SC 2021; waves, Liu et al., "Hanayo", SC 2023): a
/// pipeline of S stages fills in the time of one stage's part in place of all of it, for as many
/// times the messages.
///
/// From a replica of one stage each (its units, their order and places, and what share of the work
/// each has) come orders of seats: rounds 0 1 .. S-1 0 1 .. S-1, and waves 0 1 .. S-1 S-2 .. 1 0,
/// whose turns need no message; of each 2 to 4 turns. Layers are dealt in that order, so that each
/// seat has the share that it had; then cuts move, one or several side by side by a layer, as long
/// as the replica alone gets quicker by the simulator within memory. Heuristic, deterministic.
class Interleaving {
 public:
  /// Must outlive it. `most_passes`: of micro-batches through stages, simulated in all.
  Interleaving(const StageEvaluator& evaluator, const StageSums& sums, std::int64_t most_passes)
      : evaluator_(evaluator), sums_(sums), left_(most_passes) {}

  /// The fastest that was found of a placed replica with several stages on devices of their own;
  /// absent: none fits, or is quicker than it.
  std::optional<StageReplica> find(const StageReplica& replica);

  /// What a step of it may take in turns, at best, if it takes so long without: all of its slowest
  /// stage and a part of the rest.
  Seconds hope(const StageReplica& replica, Seconds alone) const;

  std::int64_t simulated() const { return simulated_; }

  /// The replica with each stage in the way of the same devices that is fastest there: in turns
  /// there may be room for what it has none for.
  StageReplica in_fastest_ways(StageReplica replica) const;

 private:
  struct Found {
    StageReplica replica;
    Seconds seconds;
  };
  std::optional<Seconds> simulate(const StageReplica& replica);
  std::vector<std::vector<double>> find_shares(const StageReplica& replica) const;
  std::optional<Found> deal(const StageReplica& replica, const std::vector<std::size_t>& seats,
                            const std::vector<double>& shares);
  bool time(Found& found);
  bool move(Found& found);

  const StageEvaluator& evaluator_;
  const StageSums& sums_;
  std::int64_t left_, simulated_ = 0;
};

}  // namespace motley::search
