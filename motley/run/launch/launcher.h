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

/// How a job's workers ended.
enum class JobEnd { kFinished, kStopped, kFailed };
struct JobOutcome {
  JobEnd end = JobEnd::kFailed;
  /// First failure: rank, device, what happened ("killed by signal 9"), step and last instruction.
  Error error;
  std::vector<int> exit_codes;
};

/// What a running job's workers are told or made to do.
struct Commands {
  std::vector<std::string> lines;  ///< by rank; empty: nothing for that one
  std::vector<int> start;          ///< ranks that have no process; theirs join what runs
  std::vector<int> kill;
  /// Ranks that the job has been given, or of which it says something else now.
  std::vector<int> added;
};

struct LaunchOptions {
  std::string worker;       ///< path of motley-worker
  std::string job_path;     ///< the job's JSON
  Hosts* hosts = nullptr;   ///< the agents of seats
  std::vector<Seat> seats;  ///< by rank, as place_job gives them; empty: all are here
  /// Ranks that run already, by another coordinator that is gone: the numbers by which their agents
  /// know them. Then no other rank is started at first.
  std::map<int, int> adopted = {};
  std::string verb = "run";  ///< of the worker: "run" or "collectives"
  double kill_after_s = 15;  ///< after a failure, survivors get this long, then SIGKILL
  /// Once true, workers are told to stop as by SIGTERM. Null: only signals tell them.
  const std::atomic<bool>* stop = nullptr;
  /// Told of each signal that tells workers to stop.
  std::function<void(int signal)> on_signal = nullptr;
  /// Of a job whose plan may change: asked for until there are no more, whenever something was
  /// heard of workers, and every 50 ms.
  std::function<std::optional<Commands>()> orders = nullptr;
  /// Of an elastic job: a worker has ended, or said an error and will. True: the others go on.
  /// One whose host cannot be reached is lost as soon as it is to be killed; a rank that is started
  /// on such a host has the host reached anew, beside all else.
  std::function<bool(int rank, const Error& error)> on_loss = nullptr;
};

/// Starts one worker per device of the job, which may be given further ones by orders, here
/// (posix_spawn; each dies with its parent) or by the agent of its host, reads their events and
/// passes each to `on_event` in arrival order, forwards SIGTERM and SIGINT as SIGTERM, brings the
/// checkpoints that are written elsewhere, and waits for all. When one fails, the others end within
/// 30 s: they notice by themselves, or are killed. Never hangs: silence longer than the job's
/// timeout is a failure that says which rank is in which instruction (from status files, see
/// status.h).
JobOutcome launch(const Job& job, const LaunchOptions& options,
                  const std::function<void(const WorkerEvent&)>& on_event);

/// A worker verb on this machine ("") or another.
struct WorkerTask {
  std::vector<std::string> arguments;
  std::string host;
};

/// Runs worker verbs side by side until each has printed a line,
/// its result, and returns these lines in order. A worker that has printed its line may go on
/// working, so that the others are not alone; at the end all are killed.
Result<std::vector<std::string>> run_side_by_side(const std::string& worker,
                                                  const std::vector<WorkerTask>& tasks,
                                                  double timeout_s, Hosts* hosts = nullptr);

/// Runs a program (found in PATH) such as the exporter to its end and returns its stdout. Exit code
/// 75 (stopped) is no error. SIGTERM and SIGINT go to it as SIGTERM; its stderr goes where ours
/// goes.
Result<std::string> run_program(const std::string& program,
                                const std::vector<std::string>& arguments, double timeout_s);

}  // namespace motley::run
