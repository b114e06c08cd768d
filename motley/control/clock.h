#pragma once

#include "motley/base/units.h"

namespace motley::control {

/// The composer's only source of time, so that tests decide how long things take.
class Clock {
 public:
  virtual ~Clock() = default;
  /// Monotonic, from an arbitrary origin.
  virtual Seconds steady() const = 0;
  /// Since 1970.
  virtual Seconds calendar() const = 0;
};

class SystemClock : public Clock {
 public:
  Seconds steady() const override;
  Seconds calendar() const override;
};

}  // namespace motley::control
