#pragma once

#include <cstdint>
#include <vector>

namespace motley::search {

/// Returns the local batches at which operators are measured so that any split of `global_batch`
/// can be priced: 1, 2, 4, ... and the largest batch of one device, min(global_batch, max_samples);
/// increasing. `profile` and `plan` share them. Example: (40, 4096) gives 1 2 4 8 16 32 40. Both
/// arguments are at least 1.
std::vector<std::int64_t> profile_batches(std::int64_t global_batch, std::int64_t max_samples);

}  // namespace motley::search
