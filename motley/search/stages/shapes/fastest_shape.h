#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "motley/search/stages/shapes/shape_search.h"

namespace motley::search {

/// Replicas that do all samples alone, of devices that there are.
class FastestShape {
 public:
  /// Numbers of devices, of each pool none to all, that are told apart; where a cluster has more,
  /// prices of devices have to do (ShapeSearch::cheapest).
  static constexpr std::size_t kMostCounts = 2000;
  static bool can_search(const std::vector<DevicePool>& pools);

  /// can_search() of the search's costs, which must outlive it.
  explicit FastestShape(const ShapeSearch& search) : search_(search) {}

  struct Question {
    std::int64_t samples = 0, micro_batch = 1;
    double seconds = 0;           ///< nothing that takes longer
    std::size_t most_stages = 1;  ///< 1 or more
    double message_weight = 1;    ///< of messages, times what they take
    double fill_weight = 1;       ///< of a micro-batch's pass, until the next stage can begin
  };
  /// By number of stages the shape that takes least by ShapeModel (max(W, fill_weight w +
  /// message_weight c + time) in front of `time`), 1F1B within memory; absent where
  /// none ends in time. Exact but for what follows a stage's passes (update, exchange): that has to
  /// end in time, and counts at the first stage. A dynamic program from the last layer to the
  /// first over (layer, stages, devices used of each pool, units that send alike): of suffixes that
  /// agree in these the fastest is enough, as a stage in front makes max(W, w + c + time) of its
  /// time, and its memory depends on the number of stages alone. O(stages layers^2 units counts).
  std::map<std::size_t, ReplicaShape> find(const Question& question) const;

 private:
  const ShapeSearch& search_;
};

}  // namespace motley::search
