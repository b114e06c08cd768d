#pragma once

#include <cstdint>
#include <memory>

#include "motley/run/feed/feed.h"
#include "motley/run/torch/trained_tensors.h"

namespace motley::run {

/// One rank's samples.
struct RankFeeds {
  std::unique_ptr<Feed> training;
  std::unique_ptr<Feed> evaluation;    ///< null: the job does not evaluate
  std::int64_t batches_evaluated = 0;  ///< per evaluation
};
/// Opens the feeds of a training that continues from a point. `tensors` and `status`, which shows
/// progress, outlive them. Collective if samples are loaded.
Result<RankFeeds> open_feeds(const TrainedTensors& tensors, StatusFile& status,
                             const TrainingPoint& point);

}  // namespace motley::run
