#pragma once

#include <cstdint>
#include <vector>

#include "motley/base/units.h"

namespace motley::cost {

/// A link (NIC, switch) that a flow crosses: each byte of the flow takes `weight` bytes of
/// capacity, so flows share links by weight. A ring all-reduce of B bytes among n ranks is one flow
/// of 2 (n-1)/n B that crosses every link with weight 1, or 2 where the ring passes a NIC twice.
struct LinkUse {
  std::int32_t link = 0;
  double weight = 1.0;  ///< > 0
  bool operator==(const LinkUse&) const = default;
};

/// Bytes that move at one rate over all of `uses` at the same time.
struct Flow {
  double bytes = 0;
  std::vector<LinkUse> uses;
  double most_rate = 0;  ///< bytes/s that it cannot exceed even alone; 0: no limit
  bool operator==(const Flow&) const = default;
};

/// Merges the uses into one per link, with the sum of the weights.
void merge_uses(Flow& flow);

/// A delay without traffic (latency, launch), then flows that start together.
struct TransferPhase {
  Seconds delay;
  std::vector<Flow> flows;
  bool operator==(const TransferPhase&) const = default;
};

/// A point-to-point transfer or a collective: consecutive phases; without flows just their delays.
struct Transfer {
  std::vector<TransferPhase> phases;
  bool operator==(const Transfer&) const = default;
};

}  // namespace motley::cost
