#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/control/clock.h"
#include "motley/control/listener.h"
#include "motley/control/run_directory.h"
#include "motley/control/training/noise_parts.h"
#include "motley/job/membership.h"
#include "motley/report/event_file.h"
#include "motley/run/job.h"

namespace motley::control {

/// Waiting for samples that Python loads.
struct Waiting {
  double share = 0;   ///< of step time, without this call's first step
  int processes = 0;  ///< loading processes per machine
  int wanted = 0;     ///< enough to load as fast as the devices train
  /// Is it worth a note?
  bool is_noticed() const { return share > 0.03; }
};

struct RentedRun {
  double paid = 0;  ///< since the run first began
  Seconds spare;    ///< until the deadline; negative: late
  int asked = 0;    ///< machines requested by this call
};

struct Measured {
  std::vector<double> losses;  ///< of all steps since the beginning
  Seconds step;                ///< median over this call, without its first step
  std::string checkpoint;
  std::int64_t lost_steps = 0;  ///< recomputed because no checkpoint or remaining device had them
  std::int64_t first_step = 0;
  std::vector<std::string> devices = {};  ///< by rank
  std::vector<double> busy;               ///< compute time / step time, by rank
  std::vector<std::int64_t> peak_bytes;   ///< by rank
  Waiting waiting = {};
  bool stopped = false;  ///< asked to stop; the checkpoint is written
  std::map<std::int64_t, run::Evaluation> evaluations = {};  ///< by steps done
  std::int64_t best_step = -1;  ///< steps done at the best evaluation; -1: there is none
  std::vector<job::MembershipChange> membership = {};
  int candidate = -1;  ///< the last one of the run's adaptation; -1: it has none
  std::optional<RentedRun> rented = {};
};

/// "waiting for data 41% of the time: 5 loading processes a machine would do (--loaders 5), ..."
std::string print_waiting(const Waiting& waiting);

/// "loss 0.06921, accuracy 0.97643"
std::string print_evaluation(const run::Evaluation& evaluation);

/// The description of a run in its reports.
struct Watched {
  std::vector<std::string> devices;  ///< of the ranks that report here, in order
  std::int64_t steps = 0;            ///< total of the training
  double lr = 0;
  std::int64_t global_batch = 0;
  std::optional<Seconds> predicted;  ///< step time
};

/// Combines the ranks' events: a step that all have reported goes to the listener, log.jsonl and
/// the TensorBoard file. Without a writable TensorBoard file the run continues, with a note.
class Monitor {
 public:
  /// The listener and the clock outlive the monitor.
  Monitor(Watched watched, const Clock& clock, Listener& listener)
      : watched_(std::move(watched)), clock_(clock), listener_(listener) {}

  /// Opens the files; `earlier`: the log of the continued run.
  Result<void> open(const RunDirectory& directory, Log earlier);
  /// Adds a rank to the job, or gives it another device.
  void know_rank(int rank, const std::string& device);
  /// kStop: the listener has asked to stop.
  Wish on_event(const run::WorkerEvent& event);
  /// Ends after the last event. Steps in a checkpoint are complete without a lost rank's report,
  /// whose numbers are then 0.
  void end();
  Measured result() const;

 private:
  struct Pending {
    LoggedStep logged;
    std::size_t reports = 0;
    NoiseParts noise;
    bool has_loss = false;
  };

  void on_checkpoint(const Json& fields);
  void on_ready(const Json& fields);
  void on_step(const run::WorkerEvent& event);
  void on_evaluation(const Json& fields);
  void on_recovery(const Json& fields);
  void complete(std::int64_t step, const LoggedStep& logged);
  void write_scalars(std::int64_t step, const LoggedStep& logged);
  void write_events(std::int64_t step, const std::vector<report::EventFile::Scalar>& scalars);
  Seconds usual_step() const;
  Waiting waiting() const;
  void note_waiting(std::int64_t step);
  std::size_t ranks() const { return watched_.devices.size(); }

  Watched watched_;
  const Clock& clock_;
  Listener& listener_;
  std::ofstream log_;
  std::optional<report::EventFile> events_;
  Log known_;
  std::map<std::int64_t, Pending> pending_;
  std::vector<double> step_seconds_;  // of this call, without its first step
  std::string checkpoint_;
  std::int64_t saved_steps_ = 0;
  std::int64_t first_step_ = 0, lost_steps_ = 0;
  int generation_ = 0;  // of the last step
  std::int64_t generation_begin_ = 0;
  bool has_noted_waiting_ = false;
  Wish wish_ = Wish::kGoOn;
};

}  // namespace motley::control
