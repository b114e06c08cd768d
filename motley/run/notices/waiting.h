#pragma once

#include "motley/base/deadline.h"

namespace motley::run {

/// Why wait_on returned.
enum class Woke { kReady, kLate, kTold };

/// Waits until `descriptor` (-1: none) is ready for one of poll(2)'s `events`, until the deadline,
/// or until `wake` (-1: none) is readable, which takes precedence.
Woke wait_on(int descriptor, short events, const Deadline& deadline, int wake);

}  // namespace motley::run
