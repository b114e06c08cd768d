#pragma once

namespace motley {

/// Lanes of a device: each runs its instructions in order; lanes run at the same time.
enum class Lane { kCompute, kTransfer };

}  // namespace motley
