#pragma once

#include <cstdint>
#include <variant>

#include "motley/base/json.h"
#include "motley/run/change.h"

namespace motley::job {

/// All living processes halt and report where they stand.
struct Halt {
  int number = 0;
};
/// The job gets a new device, or a new description of one that has not joined yet.
struct AddDevice {
  int process = 0;
  run::WorkerDevice device;
};
struct StartProcess {
  int process = 0;
};
struct KillProcess {
  int process = 0;
};
/// A process that has joined learns the running program by the change that brought it.
struct Follow {
  int process = 0, number = 0;
};
/// Square norms of gradients are computed every so many steps (run/change.h).
struct CountEvery {
  std::int64_t every = 1;
};
/// Replicates to the job's hosts the state that another coordinator would need
/// (run/launch/agent_takeover.h). When enough hosts have confirmed, the job gets an event `leads`.
struct Leave {
  Json what;
};
using Order = std::variant<run::Change, Halt, AddDevice, StartProcess, KillProcess, Follow,
                           CountEvery, Leave>;

}  // namespace motley::job
