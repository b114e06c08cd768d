#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "motley/data/excerpt.h"
#include "motley/run/batch_order.h"

namespace motley::run {

/// What some ranks read of a file's samples from a batch to another: a pure function of these.
struct DataReads {
  BatchOrder order;
  std::int64_t batches = 0;  ///< from the order's first on
  std::vector<int> ranks;    ///< of one machine
  std::int64_t samples = 0;  ///< of the data
  std::optional<std::uint64_t> shuffle;
};

/// The samples; nothing where they are probably more than `most_share` of all, which is known
/// without looking: so that what is looked at is at most some epochs, for some hundred nanoseconds
/// a sample, in an eighth of a byte each.
std::optional<data::SampleSet> find_samples(const DataReads& reads, double most_share);

/// What tells these reads from others of the same data.
std::string reads_key(const DataReads& reads);

}  // namespace motley::run
