#pragma once

#include <cstdint>
#include <vector>

#include "motley/search/stages/costs/stage_sums.h"

namespace motley::search {

/// The time of a replica's samples by the model (shape_search.h), with the stages' terms summed
/// once. With m full micro-batches and a smaller one of r samples
///
///     T = max over stages of max(before + late, post) + m pass + pass of r,
///
/// where `late` of the first stage and `post` of each are update and exchange.
class ShapeTimes {
 public:
  struct Stage {
    std::size_t first = 0, end = 0, unit = 0;
    double pass = 0;  ///< seconds of a full micro-batch
    double once = 0;  ///< seconds independent of the samples
  };
  /// The sums must outlive it.
  ShapeTimes(const StageSums& sums, std::vector<Stage> stages, std::int64_t micro_batch)
      : sums_(&sums), stages_(std::move(stages)), micro_batch_(micro_batch) {}

  /// Infinite if a unit does not know the smaller last micro-batch.
  double seconds(std::int64_t samples) const;
  /// Returns the most samples in a time, at most `most`. O(stages log of the micro-batch).
  std::int64_t most_samples(double seconds, std::int64_t most) const;

 private:
  bool knows_rest(std::int64_t samples) const;

  const StageSums* sums_;
  std::vector<Stage> stages_;
  std::int64_t micro_batch_;
};

}  // namespace motley::search
