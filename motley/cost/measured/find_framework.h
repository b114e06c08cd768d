#pragma once

#include <optional>

#include "motley/base/result.h"
#include "motley/cluster/framework.h"
#include "motley/cost/measured/profile_store.h"

namespace motley::cost {

/// Returns the measured memory besides tensors, the maximum of the kept rounds; empty: none.
Result<std::optional<cluster::Framework>> find_framework(const ProfileStore& store,
                                                         const DeviceKey& key);

}  // namespace motley::cost
