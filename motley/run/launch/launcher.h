#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/run/hosts/hosts.h"
#include "motley/run/job.h"
#include "motley/run/launch/remote_job.h"

namespace motley::run {

enum class JobEnd { kFinished, kStopped, kFailed };
struct JobOutcome {
  JobEnd end = JobEnd::kFailed;
  /// The first failure: rank, device, cause ("killed by signal 9"), step and last instruction.
  Error error;
  std::vector<int> exit_codes;
};

/// Orders for the workers of a running job.
struct Commands {
  std::vector<std::string> lines;  ///< by rank; empty: nothing for that rank
  std::vector<int> start;          ///< ranks without a process; they join the running job
  std::vector<int> kill;
  /// Ranks that the job has gained, or whose description changed.
  std::vector<int> added;
};

struct LaunchOptions {
  std::string worker;       ///< path of motley-worker
  std::string job_path;     ///< the job's JSON
  Hosts* hosts = nullptr;   ///< the agents of seats
  std::vector<Seat> seats;  ///< by rank, from place_job; empty: all are local
  /// Running ranks of a lost coordinator, by their agents' numbers. No others start at first.
  std::map<int, int> adopted = {};
  std::string verb = "run";  ///< of the worker: "run" or "collectives"
  double kill_after_s = 15;  ///< seconds for survivors of a failure, then SIGKILL
  /// Once true, workers are stopped as by SIGTERM. Null: only signals stop them.
  const std::atomic<bool>* stop = nullptr;
  std::function<void(int signal)> on_signal = nullptr;
  /// If the plan may change: called until it returns none, after each event and every 50 ms.
  std::function<std::optional<Commands>()> orders = nullptr;
  /// For an elastic job: called when a worker ended or reported a fatal error. True: the others
  /// continue. A rank whose host is unreachable is lost as soon as it is to be killed. Starting a
  /// rank on such a host reaches the host again, without delaying anything else.
  std::function<bool(int rank, const Error& error)> on_loss = nullptr;
};

/// Starts one worker per device of the job, which orders may extend: locally (posix_spawn; each
/// dies with its parent) or through the agent of its host. Reads their events and passes each to
/// `on_event` in arrival order. Forwards SIGTERM and SIGINT as SIGTERM, brings checkpoints that are
/// written elsewhere, and waits for all. When one worker fails, the others end within 30 s: they
/// notice by themselves, or are killed. Never hangs: silence longer than the job's timeout is a
/// failure that reports which rank is in which instruction (from status files, see status.h).
JobOutcome launch(const Job& job, const LaunchOptions& options,
                  const std::function<void(const WorkerEvent&)>& on_event);

}  // namespace motley::run
