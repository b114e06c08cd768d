#include "motley/base/exit_code.h"

namespace motley {

int exit_code(const Error& error) {
  if (error.code == "run.interrupted") return kInterrupted;
  switch (error.kind) {
    case ErrorKind::kUsage:
      return kUsage;
    case ErrorKind::kInfeasible:
      return kInfeasible;
    case ErrorKind::kStale:
      return kStale;
    case ErrorKind::kCheck:
      return kCheckFailed;
    case ErrorKind::kRuntime:
      return kRuntimeFailure;
  }
  return kRuntimeFailure;
}

}  // namespace motley
