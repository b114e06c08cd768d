#pragma once

#include <string_view>

namespace motley {

/// Lanes of a device, which run at the same time. The compute lane and the transfer lane
/// (collectives) each run in order; the peer lane orders only sends, or receives, between two
/// devices.
enum class Lane { kCompute, kTransfer, kPeer };

/// Returns "compute", "transfer" or "peer", for text forms and messages.
constexpr std::string_view lane_name(Lane lane) {
  return lane == Lane::kCompute ? "compute" : lane == Lane::kTransfer ? "transfer" : "peer";
}

}  // namespace motley
