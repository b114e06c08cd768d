#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "motley/data/excerpt.h"
#include "motley/run/batch_order.h"

namespace motley::run {

/// The samples that some ranks read from a file over a range of batches, as a pure function.
struct DataReads {
  BatchOrder order;
  std::int64_t batches = 0;  ///< counted from the order's first
  std::vector<int> ranks;    ///< ranks of one machine
  std::int64_t samples = 0;  ///< of the data
  std::optional<std::uint64_t> shuffle;
};

/// Returns the samples; none: more than `most_share` of all. Shuffled reads are estimated first, so
/// at most a few epochs are enumerated: some hundred ns and an eighth of a byte per sample.
std::optional<data::SampleSet> find_samples(const DataReads& reads, double most_share);

std::string reads_key(const DataReads& reads);

}  // namespace motley::run
