#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/cluster/cluster.h"
#include "motley/control/wires.h"
#include "motley/control/wish.h"
#include "motley/job/order.h"
#include "motley/program/program.h"
#include "motley/run/job.h"
#include "motley/run/launch/agent_takeover.h"
#include "motley/run/launch/environment.h"
#include "motley/run/launch/launcher.h"
#include "motley/run/measure.h"

namespace motley::control {

/// One rank of a program, timed without the other ranks.
struct TimedProgram {
  std::shared_ptr<const program::Program> program;
  int rank = 0;
  const program::DeviceProgram& device() const {
    return program->devices[static_cast<std::size_t>(rank)];
  }
};

/// One worker's work: operators of all programs at full speed, or whole steps of each at the
/// device's speed.
struct TimingTask {
  enum class What { kOperators, kWholeSteps };
  What what = What::kOperators;
  run::WorkerDevice device;
  std::vector<TimedProgram> programs;
  Seconds per_program{0.4};
};

struct HostFacts {
  std::string motley, torch;
  std::string processor, instructions;  ///< "AMD EPYC 9R14", "avx512f"
  int cores = 0;                        ///< available to a process there
  Seconds clock_ahead;                  ///< its calendar time minus this machine's
};

struct FoundHosts {
  std::vector<std::string> hosts;          ///< those that answered, in the given order
  std::vector<HostFacts> facts;            ///< by host
  std::vector<cluster::Cluster> clusters;  ///< by host: a cluster of that machine alone
  Wires wires;
  std::map<std::string, Error> missing;  ///< why the others did not answer
};

/// The processes that have PyTorch, as an interface, so that tests need none
/// (motley/testing/fake_outside.h). Calls return when the workers have ended; none waits forever.
class Workers {
 public:
  virtual ~Workers() = default;
  /// Returns the workers' PyTorch version, "2.15". Usage error: there is none, or it does not fit.
  virtual Result<std::string> torch_version() const = 0;
  /// Runs the tasks concurrently. Returns times by task, program and instruction.
  virtual Result<std::vector<std::vector<run::OpTime>>> time_programs(
      const std::vector<TimingTask>& tasks) = 0;
  /// Times the exchanges among the job's devices, and compute beside them. The job has no program,
  /// data or directory.
  virtual Result<run::MeasuredGroup> time_exchanges(const run::Job& job) = 0;
  /// Runs a job whose files are in its run directory, and passes workers' events in order of
  /// arrival. When `on_event` asks to stop, workers write a checkpoint and end: kStopped. A signal
  /// that ends the job is an event `signal` of process -1 with its number in `signal`.
  using OnEvent = std::function<Wish(const run::WorkerEvent&)>;
  /// `orders`: called until it returns none, at the beginning, after each event and periodically.
  /// `on_loss`: a process has ended, or has reported an error and will end; true: the job continues
  /// without it. Null: no process may be lost.
  using Orders = std::function<std::optional<job::Order>()>;
  using OnLoss = std::function<bool(int process, const Error& error)>;
  virtual run::JobOutcome train(const run::Job& job, const OnEvent& on_event, const Orders& orders,
                                const OnLoss& on_loss) = 0;
  /// Takes over the processes of a lost coordinator; `train` then continues with them.
  virtual Result<run::TakeoverState> take_over(const std::string& memory_file) = 0;
  /// Makes the lost coordinator's last checkpoint the latest one of the run directory and returns
  /// its path; "": no remaining host has one. May be called while `train` asks for orders.
  virtual Result<std::string> bring_left_checkpoint(const std::string& run_dir) = 0;
  /// Surveys machines and measures the links between them (link_survey.h); `tell` reports progress.
  /// Usage error `host.twice`: two names of one machine.
  using Tell = std::function<void(const std::string& line)>;
  virtual Result<FoundHosts> find_hosts(const std::vector<std::string>& hosts,
                                        const Tell& tell) = 0;
  /// Returns by host how far its calendar is ahead of this machine's.
  virtual Result<std::map<std::string, Seconds>> clocks_ahead(
      const std::set<std::string>& hosts) = 0;
  /// Fetches the files of a checkpoint that other hosts hold (run/checkpoints/held_parts.h).
  virtual Result<void> gather_held(const std::string& checkpoint) = 0;
  /// Sets how other machines are reached: "ssh" (default), "slurm" or "mpi".
  virtual Result<void> reach_by(const std::string& launcher) = 0;
  /// Called first by rank 0 of an external launcher's job, for which the other ranks then work.
  virtual Result<void> gather(const run::RankPlace& place) = 0;
  /// The machines of the launcher's ranks, this one first; empty if there are no other ranks.
  virtual std::vector<std::string> launched_hosts() const = 0;
  /// Ends the other ranks with this exit code.
  virtual void end(int code) = 0;
};

}  // namespace motley::control
