#pragma once

#include <cstddef>
#include <vector>

#include "motley/base/units.h"

namespace motley::control {

/// A direction between two machines, by their positions in a list.
struct WireFlow {
  std::size_t from = 0, to = 0;
  bool operator==(const WireFlow&) const = default;
};

/// One direction of a link, measured without disturbing traffic.
struct Wire {
  WireFlow flow;
  Seconds latency;
  BytesPerSecond bandwidth;
};

/// The rates that simultaneous flows get, by flow.
struct Load {
  std::vector<WireFlow> flows;
  std::vector<BytesPerSecond> rates;
  double sum() const {
    double sum = 0;
    for (const BytesPerSecond rate : rates) sum += rate.value;
    return sum;
  }
};

struct Wires {
  std::size_t hosts = 0;
  std::vector<Wire> alone;  ///< both directions of each measured pair
  std::vector<Load> loads;
};

}  // namespace motley::control
