#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "motley/search/stages/shapes/shape_search.h"

namespace motley::search {

/// Finds replicas that process all samples alone, on the available devices.
class FastestShape {
 public:
  /// sets of devices by counts per pool; for more, use prices (ShapeSearch::cheapest)
  static constexpr std::size_t kMostCounts = 2000;
  static bool can_search(const std::vector<DevicePool>& pools);

  /// Requires can_search() of the search's costs; the search must outlive it.
  explicit FastestShape(const ShapeSearch& search) : search_(search) {}

  struct Question {
    std::int64_t samples = 0, micro_batch = 1;
    double seconds = 0;           ///< upper limit
    std::size_t most_stages = 1;  ///< 1 or more
    double message_weight = 1;    ///< multiplies messages' times
    double fill_weight = 1;  ///< multiplies a micro-batch's pass, until the next stage can begin
  };
  /// Finds, by number of stages, the pipeline configuration with the least time by ShapeModel
  /// (max(W, fill_weight w + message_weight c + time) before `time`) with 1F1B within memory;
  /// absent if none is in time. Exact except for a stage's update and exchange after its passes:
  /// they must end in time, and count in the first stage. A dynamic program from the last layer to
  /// the first over (layer, stages, used devices per pool, units that send alike): of suffixes
  /// equal in these the fastest suffices, since a stage before it makes its time max(W, w + c +
  /// time), and its memory depends only on the number of stages. O(stages layers^2 units counts).
  std::map<std::size_t, ReplicaShape> find(const Question& question) const;

 private:
  const ShapeSearch& search_;
};

}  // namespace motley::search
