#pragma once

#include <string_view>

namespace motley {

/// Lanes of a device: they run at the same time. The compute lane and the transfer lane (of
/// collectives) each run their instructions in order; of the peer lane (sends and receives) those
/// of one direction between two devices are in order.
enum class Lane { kCompute, kTransfer, kPeer };

/// "compute", "transfer" or "peer": in text forms and in messages.
constexpr std::string_view lane_name(Lane lane) {
  return lane == Lane::kCompute ? "compute" : lane == Lane::kTransfer ? "transfer" : "peer";
}

}  // namespace motley
