#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "motley/search/stages/costs/stage_costs.h"

namespace motley::search {

/// Prefix sums of layers' seconds at one micro-batch on one unit.
struct WorkSums {
  std::vector<double> forward, backward, update;  ///< one more than layers
  double pass(std::size_t first, std::size_t end) const {
    return forward[end] - forward[first] + backward[end] - backward[first];
  }
};

/// The memory of a stage on each member of its unit.
struct StageBytes {
  std::int64_t fixed = 0;       ///< for any micro-batch
  std::int64_t per_sample = 0;  ///< per sample in flight
  std::int64_t workspace = 0;   ///< per sample of the micro-batch in its backward pass
  std::int64_t total(std::int64_t micro_batch, std::int64_t in_flight) const {
    return fixed + micro_batch * (per_sample * in_flight + workspace);
  }
};

/// Costs of ranges of layers, as sums computed on demand; for one thread.
class StageSums {
 public:
  /// The costs must outlive it.
  explicit StageSums(const StageCosts& costs);

  const StageCosts& costs() const { return *costs_; }
  /// Requires that the costs know the micro-batch on the unit.
  const WorkSums& work(std::size_t unit, std::int64_t micro_batch) const;
  /// Returns the bytes of layers [first, end), with tied weights once.
  StageBytes bytes(std::size_t unit, std::size_t first, std::size_t end) const;
  /// Returns the whole unit's exchanged gradient bytes of [first, end), with tied weights once.
  std::int64_t gradients(std::size_t unit, std::size_t first, std::size_t end) const;
  /// Returns the number of micro-batches in flight that fit, from 0 to `most`.
  std::int64_t most_in_flight(std::size_t unit, std::size_t first, std::size_t end,
                              std::int64_t micro_batch, std::int64_t most) const;
  /// Returns the bytes per sample from layer `end - 1` to the next stage.
  Bytes output(std::size_t unit, std::size_t end) const;
  Bytes memory(std::size_t unit) const { return costs_->memory(unit); }

 private:
  struct ByteSums {
    std::vector<std::int64_t> states, gradients, kept;
    std::vector<std::vector<std::int64_t>> workspace;  ///< [first][end - first - 1]: the largest
    std::vector<LayerBytes> layers;
  };
  bool has_copy(std::size_t first, std::size_t end) const;

  const StageCosts* costs_;
  std::vector<ByteSums> bytes_;  // by unit
  mutable std::map<std::pair<std::size_t, std::int64_t>, WorkSums> work_;
};

}  // namespace motley::search
