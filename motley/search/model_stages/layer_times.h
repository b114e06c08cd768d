#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "motley/search/model_stages/model_pieces.h"
#include "motley/search/stages/costs/stage_costs.h"
#include "motley/trace/trace.h"

namespace motley::search {

/// What pieces of a model take on units, by the simulated programs of one micro-batch on a unit
/// alone: what its compute lane does and waits for, of the device that is longest at it, and what
/// adds the gradients to those of others.
class LayerTimes {
 public:
  /// Both must outlive it.
  LayerTimes(const UnitPrograms& programs, const ModelPieces& pieces)
      : programs_(programs), pieces_(pieces) {}

  /// StageCosts::knows(). Micro-batches that are not simulated lie on the line between two that
  /// are; one below the smallest takes as long as it.
  bool knows(std::size_t unit, std::int64_t micro_batch) const;
  /// By piece, if so much is recomputed; only if it knows the micro-batch.
  const std::vector<LayerWork>& work(std::size_t unit, std::int64_t micro_batch,
                                     Recompute how) const;
  /// By piece: adding the gradients of a micro-batch to those before, which is in work().
  const std::vector<Seconds>& adding_up(std::size_t unit) const;
  /// The part of its pieces' time for which the unit waits for exchanges, at most; 0: not known.
  double waiting(std::size_t unit) const;

 private:
  using Works = std::array<std::vector<LayerWork>, kRecomputes.size()>;  // by Recompute

  std::optional<Works> find(std::size_t unit, std::int64_t micro_batch) const;
  std::optional<Works> simulate(std::size_t unit, std::int64_t micro_batch) const;
  Works spread(std::size_t unit, const program::Program& program, std::size_t device,
               const trace::Trace& trace) const;

  const UnitPrograms& programs_;
  const ModelPieces& pieces_;
  mutable std::map<std::pair<std::size_t, std::int64_t>, std::optional<Works>> times_;
  mutable std::map<std::size_t, double> waiting_;                  // by unit
  mutable std::map<std::size_t, std::vector<Seconds>> adding_up_;  // by unit
};

}  // namespace motley::search
