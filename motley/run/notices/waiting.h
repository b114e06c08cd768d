#pragma once

#include "motley/base/deadline.h"

namespace motley::run {

/// Why wait_on came back.
enum class Woke { kReady, kLate, kTold };

/// Waits until `descriptor` (-1: nothing) can do one of poll(2)'s `events`, until the deadline, or
/// until something can be read from `wake` (-1: nobody wakes), which goes first.
Woke wait_on(int descriptor, short events, const Deadline& deadline, int wake);

}  // namespace motley::run
