#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/data/batch.h"
#include "motley/program/program.h"
#include "motley/program/step_parts.h"
#include "motley/run/checkpoints/tensor_files.h"
#include "motley/run/hosts/status.h"
#include "motley/run/job.h"
#include "motley/run/torch/exchange/communicator.h"
#include "motley/trace/trace.h"

namespace motley::run {

struct ExecutorOptions {
  std::string kind = "cpu";  ///< "cpu" or "cuda"
  int local_index = 0;
  double speed = 1.0;               ///< emulated share of one core (device_clock.h)
  std::optional<Bytes> memory;      ///< CPU tensors beyond this are refused (allocator.h)
  std::uint64_t seed = 0;           ///< of dropout and other random numbers
  std::int64_t timeline_steps = 0;  ///< how many of the last steps keep their intervals
  /// Keep what operators need beside their results; of a GPU in the first step, whose times are
  /// off.
  bool measures_scratch = false;
  /// In steps of odd number the compute lane waits as for a message before every so-many-th
  /// instruction of it, to see what a pause costs; 0: never.
  std::size_t pauses_every = 0;
  bool measures_parts = false;  ///< StepResult::parts
  /// Tensors that another executor has, by name (persistent()): this one shares them instead of
  /// having its own.
  std::map<std::string, at::Tensor> shared = {};
  std::vector<std::string> devices = {};  ///< names by rank, for messages; may be empty
  std::vector<Fault> faults = {};         ///< that the process is to have
};

/// Which step it is: a number, where rates are as the program says.
struct StepPlace {
  StepPlace(std::int64_t number, double factor = 1, bool counts = true)
      : step(number), lr_factor(factor), counts_squares(counts) {}
  std::int64_t step;  ///< from 0 over the whole training
  double lr_factor;   ///< of every learning rate (schedule.h)
  /// Of a program that counts squares of gradients (program/square_count.h): else the instructions
  /// for it are left out, and StepResult::squares is none.
  bool counts_squares;
};

using program::StepParts;

/// Sums of squares of all elements of gradients.
struct GradientSquares {
  /// Of this rank's terms, as they are summed: one, or of each of its micro-batches.
  struct Piece {
    std::int64_t samples = 0;
    double own = 0;
  };
  std::vector<Piece> pieces = {};
  double whole = 0;  ///< of the sum
};

/// What one step gave.
struct StepResult {
  double loss = 0;                      ///< of the global batch
  std::optional<double> gradient_norm;  ///< of all gradients, where the recipe asks for it
  std::vector<double> metrics;          ///< of a program that evaluates, in the order of its graph
  bool stop_requested = false;          ///< by any rank
  bool change_requested = false;        ///< by one
  double step_s = 0;                    ///< wall time
  double compute_s = 0;                 ///< compute lane busy, emulation's waiting included
  double wait_s = 0;                    ///< compute lane (a GPU: its stream) waiting for exchanges
  std::int64_t peak_bytes = 0;          ///< allocator's high-water mark of this step
  /// Where the program counts them (synth/noise/gradient_squares.h); not finite: not in this step.
  std::optional<GradientSquares> squares = {};
  std::optional<StepParts> parts = {};  ///< where the options ask for them, on CPUs
};

/// Runs one device's program through ATen: compute lane on the calling thread, transfer lane and
/// each strand of sends or receives (program/strands.h) on a thread of its own. Operators are
/// looked up once (all missing ones are reported together); values live in integer slots and are
/// freed where the program says. Not thread-safe, except that the StatusRecord may be read and
/// request_stop called from anywhere (a signal handler too).
class Executor {
 public:
  /// `communicator` may be null for a program without exchanges (or, when profiling, to make
  /// exchanges no-ops); it, `program` and `status` (may be null) outlive the executor.
  static Result<std::unique_ptr<Executor>> create(const program::DeviceProgram& program,
                                                  const ExecutorOptions& options,
                                                  Communicator* communicator, StatusRecord* status);
  virtual ~Executor() = default;

  /// Persistent tensors by buffer name ("fc.weight", "fc.weight/momentum", "bn.running_mean"),
  /// contiguous. Shared with the executor: writing to them changes the model (inside a
  /// c10::InferenceMode guard, or to their memory). They start as zeros.
  virtual std::map<std::string, at::Tensor> persistent() = 0;
  /// Sets persistent buffers, or the parts of them that are here, from files by name; `required`:
  /// every parameter, model buffer and constant must be there.
  virtual Result<void> load(const TensorFiles& files, bool required) = 0;
  /// Master copies that a new training's files lack begin as the parameters.
  virtual void start_masters(const TensorFiles& files) = 0;

  /// One training step, on this rank's samples. After an error ("a:0: ^45 aten::mm (h.0.attn):
  /// ...", code run.out-of-memory, run.operator, or the communicator's) the communicator is closed
  /// and the executor cannot be used again.
  virtual Result<StepResult> step(StepPlace place, const data::Batch& batch) = 0;

  /// How far a step came that failed, of a program with a commit (program/commit.h).
  enum class RecoveryState {
    kBetween,  ///< no step was stopped
    kBegun,    ///< no rank can have ended it, as this one still owed others something
    kReady,    ///< the others may have ended it
    kBroken    ///< it was decided, or cannot be: what is kept is neither that before nor that after
  };
  virtual RecoveryState recovery_state() const = 0;
  /// After a step that failed where it stood so: ends it (kReady alone), or puts what is kept back
  /// as it was before it. Without such a step nothing happens.
  enum class Verdict { kEnd, kUndo };
  virtual Result<void> settle(Verdict verdict) = 0;

  /// Of an emulated device, from the next step on. Others have a speed of 1.
  virtual void set_speed(double speed) = 0;

  /// Asks all ranks to stop after the step in which they agree. Async-signal-safe.
  virtual void request_stop() = 0;
  /// The same of going on by another program: all know of it after the same step. Of one rank.
  virtual void request_change() = 0;

  /// By instruction, the most that one step saw it hold beside what lives after it; zeros unless
  /// the options ask for it. Transfers have none.
  virtual std::vector<Bytes> scratch() const = 0;

  /// Intervals of the last `timeline_steps` steps (device 0 of the trace is this one). Times are
  /// those of the machine's monotonic clock: trace/clocks.h puts those of several on one.
  virtual trace::Trace timeline() const = 0;
};

}  // namespace motley::run
