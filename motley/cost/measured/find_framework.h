#pragma once

#include <optional>

#include "motley/base/result.h"
#include "motley/cluster/framework.h"
#include "motley/cost/measured/profile_store.h"

namespace motley::cost {

/// What was measured of a device's memory beside tensors, the most of the rounds kept; empty: it
/// was never measured.
Result<std::optional<cluster::Framework>> find_framework(const ProfileStore& store,
                                                         const DeviceKey& key);

}  // namespace motley::cost
