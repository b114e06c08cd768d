#pragma once

#include <cstdint>
#include <memory>

#include "motley/run/feed/feed.h"
#include "motley/run/torch/trained_tensors.h"

namespace motley::run {

/// One rank's samples.
struct RankFeeds {
  std::unique_ptr<Feed> training;
  std::unique_ptr<Feed> evaluation;    ///< null: the job has none
  std::int64_t batches_evaluated = 0;  ///< in one evaluation
};
/// Of a training that goes on from a point. `tensors` and `status`, which shows that something
/// happens, outlive them. Collective where samples are loaded.
Result<RankFeeds> open_feeds(const TrainedTensors& tensors, StatusFile& status,
                             const TrainingPoint& point);

}  // namespace motley::run
