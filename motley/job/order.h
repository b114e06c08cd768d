#pragma once

#include <cstdint>
#include <variant>

#include "motley/base/json.h"
#include "motley/run/change.h"

namespace motley::job {

/// All living processes of a job stop where they are and say where that is.
struct Halt {
  int number = 0;
};
/// The job is given a device that it had not, or that is described anew before it has come.
struct AddDevice {
  int process = 0;
  run::WorkerDevice device;
};
/// A process is started for a device of the job that has none, or none any more.
struct StartProcess {
  int process = 0;
};
struct KillProcess {
  int process = 0;
};
/// A process that has come learns which program runs: the one that this change brought.
struct Follow {
  int process = 0, number = 0;
};
/// Squares of gradients are counted in every so-many-th step (run/change.h).
struct CountEvery {
  std::int64_t every = 1;
};
/// What another coordinator would need to go on with the job is left with its hosts
/// (run/launch/agent_takeover.h). When enough of them have said so the job hears an event `leads`.
struct Leave {
  Json what;
};
/// What a running job's processes are told, or what is done with them.
using Order = std::variant<run::Change, Halt, AddDevice, StartProcess, KillProcess, Follow,
                           CountEvery, Leave>;

}  // namespace motley::job
