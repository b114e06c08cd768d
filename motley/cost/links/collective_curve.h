#pragma once

#include <optional>

#include "motley/base/units.h"
#include "motley/cost/links/collective_fit.h"

namespace motley::cost {

/// Seconds of an exchange over its bytes, for a measured number of ranks or one between two
/// measured ones. Between them the time is interpolated by the fitted transport (a ring's messages
/// grow with the ranks, bytes through a port hardly do), without one by the number of ranks.
struct CollectiveCurve {
  /// The fitted lines at the wanted and the measured numbers of ranks.
  struct Transports {
    Affine fewer, wanted, more;
  };
  SizeCurve fewer, more;
  double share = 0;  ///< of the way from `fewer` to `more`; 0: `fewer` alone
  std::optional<Transports> transports = {};
  double scale = 1;  ///< factor on the bytes

  Seconds at(double bytes) const;
  /// Returns the line through at(bytes) with the latency of the piece that holds at this size.
  Affine piece(double bytes) const;

 private:
  double way(double bytes) const;
};

}  // namespace motley::cost
