#include "motley/search/price/profile_batches.h"

#include <algorithm>

#include "motley/base/check.h"

namespace motley::search {

std::vector<std::int64_t> profile_batches(std::int64_t global_batch, std::int64_t max_samples) {
  MOTLEY_CHECK(global_batch >= 1 && max_samples >= 1);
  const std::int64_t largest = std::min(global_batch, max_samples);
  std::vector<std::int64_t> batches;
  for (std::int64_t batch = 1; batch <= largest / 2; batch *= 2) batches.push_back(batch);
  const std::int64_t next = batches.empty() ? 1 : batches.back() * 2;
  if (next < largest) batches.push_back(next);
  batches.push_back(largest);
  return batches;
}

}  // namespace motley::search
