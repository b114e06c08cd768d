#pragma once

#include "motley/control/clock.h"
#include "motley/control/listener.h"
#include "motley/control/workers.h"

namespace motley::control {

/// Everything outside the process that the composer uses, except files. Owns nothing.
struct Outside {
  Workers& workers;
  const Clock& clock;
  Listener& listener;
};

}  // namespace motley::control
