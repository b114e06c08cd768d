#pragma once

#include "motley/control/clock.h"
#include "motley/control/listener.h"
#include "motley/control/workers.h"

namespace motley::control {

/// All that the composer knows of the world beside files. None is owned.
struct Outside {
  Workers& workers;
  const Clock& clock;
  Listener& listener;
};

}  // namespace motley::control
