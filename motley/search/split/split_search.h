#pragma once

#include <cstdint>
#include <optional>

#include "motley/search/price/device_pools.h"
#include "motley/search/split/split_space.h"

namespace motley::search {

/// The best split under the step model, and what holds for all splits.
struct SplitSearch {
  std::optional<BatchSplit> best;  ///< absent when none is allowed
  double model_seconds = 0;        ///< model_step of `best`
  double lower_bound = 0;          ///< of model_step over all allowed splits, one device or more
  std::int64_t considered = 0;     ///< groups whose best split was computed
};

/// Water-filling: minimises the largest f_i over all groups and all integer splits of the global
/// batch (docs/algorithms.md, "Batch split"). For each pool of equally joined devices, each slowest
/// updater and each number of devices k, W is fixed, and a step of `tau` is possible exactly when
/// the k largest finv_i(tau) sum to the batch or more; the least such tau is found by bisection
/// over the values that f takes. Most (pool, updater, k) are ruled out by one test at the best tau
/// so far.
/// `lower_bound` equals `model_seconds` when the search saw every case, which it does unless the
/// cluster has more than kMaxPools pools or update times of the device kinds order differently.
/// O(cases * types * log(batch)) with few cases solved; deterministic, ties go to the lower ids.
SplitSearch find_best_split(const SplitSpace& space);

/// The same for one given group (two devices or more): every member gets samples. Empty when the
/// batch does not fit.
std::optional<BatchSplit> find_best_split_of(const SplitSpace& space,
                                             const std::vector<DeviceId>& devices);

}  // namespace motley::search
