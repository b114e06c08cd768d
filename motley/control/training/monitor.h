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

/// For samples that Python loads.
struct Waiting {
  double share = 0;   ///< of the steps' time, the first step of the call left out
  int processes = 0;  ///< a machine, that load
  int wanted = 0;     ///< that would load as fast as the devices train
  /// Is it worth a word?
  bool is_noticed() const { return share > 0.03; }
};

/// What a run that rents machines has come to.
struct RentedRun {
  double paid = 0;  ///< since it began first
  Seconds spare;    ///< to the deadline; below 0: late
  int asked = 0;    ///< machines that this call asked for
};

/// What a run gave.
struct Measured {
  std::vector<double> losses;  ///< of every step since the beginning
  Seconds step;                ///< median of the steps of this call, the first left out
  std::string checkpoint;
  std::int64_t lost_steps = 0;  ///< steps done again because a run ended without a checkpoint
  std::int64_t first_step = 0;  ///< where this call began
  std::vector<std::string> devices = {};  ///< by rank
  std::vector<double> busy;               ///< compute time / step time, by rank
  std::vector<std::int64_t> peak_bytes;   ///< by rank
  Waiting waiting = {};
  bool stopped = false;  ///< told to stop; the checkpoint is safe
  std::map<std::int64_t, run::Evaluation> evaluations = {};  ///< by steps done
  std::int64_t best_step = -1;  ///< of the best evaluation; -1: there is none
  std::vector<job::MembershipChange> membership = {};  ///< of an elastic run
  int candidate = -1;  ///< of the run's adaptation, by which it ended; -1: it has none
  std::optional<RentedRun> rented = {};  ///< of a run that rents
};

/// "waiting for data 41% of the time: 5 loading processes a machine would do (--loaders 5), ..."
std::string print_waiting(const Waiting& waiting);

/// "loss 0.06921, accuracy 0.97643"
std::string print_evaluation(const run::Evaluation& evaluation);

/// What a run is known by to those who watch it.
struct Watched {
  std::vector<std::string> devices;  ///< of the ranks that report here, in order
  std::int64_t steps = 0;            ///< that are to be done in total
  double lr = 0;                     ///< of the recipe
  std::int64_t global_batch = 0;
  std::optional<Seconds> predicted;  ///< of a step
};

/// Puts together what the ranks of a run report: a step is done when every rank has reported it.
/// Each step then goes to the listener, log.jsonl and the TensorBoard file. A run never fails
/// because of its metrics: when that file cannot be written, it goes on without, with a note.
class Monitor {
 public:
  /// The listener and the clock must outlive it.
  Monitor(Watched watched, const Clock& clock, Listener& listener)
      : watched_(std::move(watched)), clock_(clock), listener_(listener) {}

  /// Opens the files; `earlier`: of the run that is continued.
  Result<void> open(const RunDirectory& directory, Log earlier);
  /// The job was given a rank, or this one another device.
  void know_rank(int rank, const std::string& device);
  /// Takes an event of any rank. kStop: the listener asked for it, now or before.
  Wish on_event(const run::WorkerEvent& event);
  /// No more events come. Steps that a checkpoint has and that a rank which is gone never reported
  /// are done all the same; what it would have said of itself is 0.
  void end();
  /// Of all events until now.
  Measured result() const;

 private:
  struct Pending {
    LoggedStep logged;
    std::size_t reports = 0;
    NoiseParts noise;
    bool has_loss = false;  ///< the first rank reported it
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
  std::vector<double> step_seconds_;  // of this call, without the first
  std::string checkpoint_;
  std::int64_t saved_steps_ = 0;  // of the last checkpoint
  std::int64_t first_step_ = 0, lost_steps_ = 0;
  int generation_ = 0;                 // by which the last step was done
  std::int64_t generation_begin_ = 0;  // its first step
  bool has_noted_waiting_ = false;
  Wish wish_ = Wish::kGoOn;
};

}  // namespace motley::control
