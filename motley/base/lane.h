#pragma once

#include <string_view>

namespace motley {

/// Lanes of a device, which run at the same time. The compute lane and the transfer lane
/// (collectives) each run their instructions in order. In the peer lane (sends and receives) only
/// those of one direction between two devices are ordered.
enum class Lane { kCompute, kTransfer, kPeer };

/// Returns "compute", "transfer" or "peer", for text forms and messages.
constexpr std::string_view lane_name(Lane lane) {
  return lane == Lane::kCompute ? "compute" : lane == Lane::kTransfer ? "transfer" : "peer";
}

}  // namespace motley
