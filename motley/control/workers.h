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

/// A rank of a program, to be timed alone.
struct TimedProgram {
  std::shared_ptr<const program::Program> program;
  int rank = 0;
  const program::DeviceProgram& device() const {
    return program->devices[static_cast<std::size_t>(rank)];
  }
};

/// What one worker is to time. Operators of all its programs at full speed, or the whole steps of
/// each at the device's speed.
struct TimingTask {
  enum class What { kOperators, kWholeSteps };
  What what = What::kOperators;
  run::WorkerDevice device;
  std::vector<TimedProgram> programs;
  Seconds per_program{0.4};
};

/// What a machine says of itself beside its devices.
struct HostFacts {
  std::string motley, torch;            ///< versions
  std::string processor, instructions;  ///< "AMD EPYC 9R14", "avx512f"
  int cores = 0;                        ///< that a process there may use
  Seconds clock_ahead;                  ///< its calendar's time minus that of this machine
};

/// What was found of machines that were asked for.
struct FoundHosts {
  std::vector<std::string> hosts;          ///< that answered, in the order in which they were named
  std::vector<HostFacts> facts;            ///< by host
  std::vector<cluster::Cluster> clusters;  ///< by host: the machine alone
  Wires wires;                             ///< between them
  std::map<std::string, Error> missing;    ///< with why they did not answer
};

/// The processes that have PyTorch. Everything that the composer wants of them goes through here,
/// so that tests need none: motley/testing/fake_outside.h. Each call returns when the workers have
/// ended; none waits for ever.
class Workers {
 public:
  virtual ~Workers() = default;
  /// "2.15" of the PyTorch that they run with; a usage error where there is none or it does not
  /// fit.
  virtual Result<std::string> torch_version() const = 0;
  /// Runs the tasks at the same time, each until all have their times: by task, then by program
  /// and instruction.
  virtual Result<std::vector<std::vector<run::OpTime>>> time_programs(
      const std::vector<TimingTask>& tasks) = 0;
  /// Times the exchanges among the job's devices, and compute beside them. The job has no program,
  /// data or directory.
  virtual Result<run::MeasuredGroup> time_exchanges(const run::Job& job) = 0;
  /// Runs a job whose files are in its run directory, and passes what workers report in the order
  /// of arrival. When `on_event` has asked to stop, workers write a checkpoint and end: kStopped.
  /// An event `signal` of no process (-1), with its number `signal`: one came that ends the job.
  using OnEvent = std::function<Wish(const run::WorkerEvent&)>;
  /// `orders`: asked for until there are no more, at the beginning, whenever something was heard,
  /// and again and again where nothing is. `on_loss`: a process has ended, or has said an error and
  /// will; true: the job goes on without. Null: none can be lost.
  using Orders = std::function<std::optional<job::Order>()>;
  using OnLoss = std::function<bool(int process, const Error& error)>;
  virtual run::JobOutcome train(const run::Job& job, const OnEvent& on_event, const Orders& orders,
                                const OnLoss& on_loss) = 0;
  /// Takes the processes that another coordinator left, which is gone: `train` then goes on with
  /// them.
  virtual Result<run::TakeoverState> take_over(const std::string& memory_file) = 0;
  /// The last checkpoint that it left becomes the latest in the run directory: its path. "": none
  /// of its hosts has one. Also while `train` runs, when it asks for orders.
  virtual Result<std::string> bring_left_checkpoint(const std::string& run_dir) = 0;
  /// Asks machines what they are and measures what joins them (link_survey.h). `tell`: how far it
  /// is. Usage error `host.twice`: two names of one machine.
  using Tell = std::function<void(const std::string& line)>;
  virtual Result<FoundHosts> find_hosts(const std::vector<std::string>& hosts,
                                        const Tell& tell) = 0;
  /// By how much the calendars of machines are ahead of this one's: by host.
  virtual Result<std::map<std::string, Seconds>> clocks_ahead(
      const std::set<std::string>& hosts) = 0;
  /// Brings the files of a checkpoint that hosts keep (run/checkpoints/held_parts.h).
  virtual Result<void> gather_held(const std::string& checkpoint) = 0;
  /// How other machines are reached: "ssh" (unless said), "slurm" or "mpi".
  virtual Result<void> reach_by(const std::string& launcher) = 0;
  /// Of rank 0 of an external launcher's job, before anything else: the other ranks work for it,
  /// each on the machine where it was started.
  virtual Result<void> gather(const run::RankPlace& place) = 0;
  /// The machines of its ranks, this one first; empty without a launcher, or where there is no
  /// other.
  virtual std::vector<std::string> launched_hosts() const = 0;
  /// The other ranks end with this exit code.
  virtual void end(int code) = 0;
};

}  // namespace motley::control
