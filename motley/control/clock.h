#pragma once

#include "motley/base/units.h"

namespace motley::control {

/// What the time is. The composer asks no other clock, so tests say how long things took.
class Clock {
 public:
  virtual ~Clock() = default;
  /// Never goes back; from an unknown beginning.
  virtual Seconds steady() const = 0;
  /// Since 1970.
  virtual Seconds calendar() const = 0;
};

/// The machine's.
class SystemClock : public Clock {
 public:
  Seconds steady() const override;
  Seconds calendar() const override;
};

}  // namespace motley::control
