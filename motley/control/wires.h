#pragma once

#include <cstddef>
#include <vector>

#include "motley/base/units.h"

namespace motley::control {

/// From one machine to another, both by their places in a list.
struct WireFlow {
  std::size_t from = 0, to = 0;
  bool operator==(const WireFlow&) const = default;
};

/// What one machine has of the way to another, while nothing else was sent that disturbs.
struct Wire {
  WireFlow flow;
  Seconds latency;
  BytesPerSecond bandwidth;
};

/// What flows get that are under way at the same time, by flow.
struct Load {
  std::vector<WireFlow> flows;
  std::vector<BytesPerSecond> rates;
  double sum() const {
    double sum = 0;
    for (const BytesPerSecond rate : rates) sum += rate.value;
    return sum;
  }
};

/// What was measured between `hosts` machines.
struct Wires {
  std::size_t hosts = 0;
  std::vector<Wire> alone;  ///< both ways of each pair that was measured
  std::vector<Load> loads;
};

}  // namespace motley::control
