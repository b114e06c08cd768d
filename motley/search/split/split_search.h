#pragma once

#include <cstdint>
#include <optional>

#include "motley/search/price/device_pools.h"
#include "motley/search/split/split_space.h"

namespace motley::search {

/// The best split under the step model, and a bound for all splits.
struct SplitSearch {
  std::optional<BatchSplit> best;  ///< absent if none is allowed
  double model_seconds = 0;        ///< model_step of `best`
  double lower_bound = 0;          ///< of model_step over all allowed splits, one device or more
  std::int64_t considered = 0;     ///< groups whose best split was computed
};

/// Minimises the largest f_i over all groups and all integer splits of the global batch by
/// water-filling (docs/algorithms.md, "Batch split"). For each pool of equally joined devices, each
/// slowest updater and each number of devices k, W is fixed. A step of `tau` is possible exactly if
/// the k largest finv_i(tau) sum to the batch or more; the least such tau is found by bisection
/// over the values of f. Most (pool, updater, k) are ruled out by one test at the best tau so far.
/// `lower_bound` equals `model_seconds` if the search covered every case: always, unless the
/// cluster has more than kMaxPools pools or device kinds order differently by their update times.
/// O(cases * types * log(batch)) with few cases solved. Deterministic; ties go to the lower ids.
SplitSearch find_best_split(const SplitSpace& space);

/// The same for one group of two or more devices, all with samples. Empty if it cannot hold it.
std::optional<BatchSplit> find_best_split_of(const SplitSpace& space,
                                             const std::vector<DeviceId>& devices);

}  // namespace motley::search
