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
  std::optional<Bytes> memory;      ///< limit beyond which CPU allocations fail (allocator.h)
  std::uint64_t seed = 0;           ///< of dropout and other random numbers
  std::int64_t timeline_steps = 0;  ///< number of last steps whose intervals are kept
  /// Measures what operators need beside their results; on a GPU in the first step, whose times are
  /// not representative.
  bool measures_scratch = false;
  /// In odd steps pauses before every so-many-th instruction, to measure a pause's cost; 0: never.
  std::size_t pauses_every = 0;
  bool measures_parts = false;  ///< StepResult::parts
  /// Another executor's tensors by name (persistent()), which this one shares.
  std::map<std::string, at::Tensor> shared = {};
  std::vector<std::string> devices = {};  ///< names by rank, for messages; may be empty
  std::vector<Fault> faults = {};         ///< to inject
};

/// A step's number and settings.
struct StepPlace {
  StepPlace(std::int64_t number, double factor = 1, bool counts = true)
      : step(number), lr_factor(factor), counts_squares(counts) {}
  std::int64_t step;  ///< from 0 over the whole training
  double lr_factor;   ///< of every learning rate (schedule.h)
  /// False: skips instructions that count squares (program/square_count.h); squares is none.
  bool counts_squares;
};

using program::StepParts;

/// Sums of squares over all elements of gradients.
struct GradientSquares {
  /// This rank's gradients before the sum: one piece, or one per micro-batch.
  struct Piece {
    std::int64_t samples = 0;
    double own = 0;
  };
  std::vector<Piece> pieces = {};
  double whole = 0;  ///< of the summed gradients
};

struct StepResult {
  double loss = 0;                      ///< of the global batch
  std::optional<double> gradient_norm;  ///< of all gradients, if the recipe needs it
  std::vector<double> metrics;          ///< of an evaluation program, in the order of its graph
  bool stop_requested = false;          ///< by any rank
  bool change_requested = false;        ///< by one
  double step_s = 0;                    ///< wall time
  double compute_s = 0;                 ///< compute lane busy, emulated time included
  double wait_s = 0;                    ///< compute lane (a GPU: its stream) waiting for exchanges
  std::int64_t peak_bytes = 0;          ///< allocator's high-water mark in this step
  /// If this step counted them (synth/noise/gradient_squares.h); may not be finite.
  std::optional<GradientSquares> squares = {};
  std::optional<StepParts> parts = {};  ///< if the options request them, on CPUs
};

/// Runs one device's program through ATen: the compute lane on the calling thread, the transfer
/// lane and each strand of sends or receives (program/strands.h) on their own. Looks operators up
/// once and reports all missing ones together. Values live in integer slots and are freed where the
/// program says. Not thread-safe, except reading StatusRecord and request_stop (also in handlers).
class Executor {
 public:
  /// `communicator` may be null for a program without exchanges, or to make exchanges no-ops when
  /// profiling. It, `program` and `status` (may be null) outlive the executor.
  static Result<std::unique_ptr<Executor>> create(const program::DeviceProgram& program,
                                                  const ExecutorOptions& options,
                                                  Communicator* communicator, StatusRecord* status);
  virtual ~Executor() = default;
  virtual const program::DeviceProgram& program() const = 0;

  /// Returns persistent tensors by buffer name ("fc.weight", "fc.weight/momentum",
  /// "bn.running_mean"), contiguous. Shared with the executor: writing to them changes the model
  /// (inside a c10::InferenceMode guard, or to their memory). They start as zeros.
  virtual std::map<std::string, at::Tensor> persistent() = 0;
  /// Loads persistent buffers, or the parts of them that are here, from files by name. `required`:
  /// every parameter, model buffer and constant must be present.
  virtual Result<void> load(const TensorFiles& files, bool required) = 0;

  /// Runs one training step on this rank's samples. An error ("a:0: ^45 aten::mm (h.0.attn): ...";
  /// code run.out-of-memory, run.operator or the communicator's) makes communicator and executor
  /// unusable.
  virtual Result<StepResult> step(StepPlace place, const data::Batch& batch) = 0;

  /// Ends what the last step carried into the next one (synth/state/carried.h), if anything:
  /// persistent() is then the state after that step. Collective. Errors as of a step.
  virtual Result<void> take_in() = 0;

  /// How far a failed step of a program with a commit came (program/commit.h).
  enum class RecoveryState {
    kBetween,  ///< no step was stopped
    kBegun,    ///< no rank can have ended it, because this one still owed data
    kReady,    ///< other ranks may have ended it
    kBroken    ///< decided or undecidable: kept tensors match neither the state before nor after
  };
  virtual RecoveryState recovery_state() const = 0;
  /// Completes a failed step (kReady only), or restores its tensors. Else does nothing.
  enum class Verdict { kEnd, kUndo };
  virtual Result<void> settle(Verdict verdict) = 0;

  /// Sets an emulated device's speed from the next step on. Others have a speed of 1.
  virtual void set_speed(double speed) = 0;

  /// Asks all ranks to stop after the step in which they agree. Async-signal-safe.
  virtual void request_stop() = 0;
  /// Asks all ranks to change program: all learn of it after the same step. Called by one rank.
  virtual void request_change() = 0;

  /// Returns each instruction's most scratch in a step; zeros if not measured, and for transfers.
  virtual std::vector<Bytes> scratch() const = 0;

  /// Returns the intervals of the last `timeline_steps` steps (this device is device 0 of the
  /// trace), by the machine's monotonic clock; trace/clocks.h aligns several machines.
  virtual trace::Trace timeline() const = 0;
};

}  // namespace motley::run
