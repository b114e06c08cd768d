#pragma once

#include "motley/base/result.h"

namespace motley {

/// Exit codes that scripts rely on (docs/interfaces.md), of both programs.
enum ExitCode {
  kDone = 0,
  kRuntimeFailure = 1,
  kUsage = 2,
  kInfeasible = 3,
  kStale = 4,
  kCheckFailed = 5,
  kStopped = 75,  ///< stopped early, with the checkpoint safe
  kInterrupted = 130,
};

int exit_code(const Error& error);

}  // namespace motley
