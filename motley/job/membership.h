#pragma once

#include <optional>
#include <string>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/base/units.h"
#include "motley/job/device_table.h"
#include "motley/job/order.h"
#include "motley/run/job.h"
#include "motley/run/recovery.h"

namespace motley::job {

struct MembershipChange {
  std::int64_t step = 0;  ///< steps done before
  std::vector<std::string> lost, left, joined;
  Seconds pause;                ///< from detection until training resumed
  std::int64_t lost_steps = 0;  ///< recomputed steps, complete or begun
};
Json membership_to_json(const std::vector<MembershipChange>& changes);

/// Brings the devices of an elastic job to a common halt when some are lost, by events and their
/// times. Knows no process and no plan.
///
///   training --a loss, or a process that makes no progress--> halting: all living get Halt
///   halting --all living have reported where they stand--> still: the caller decides what follows
///   still --go_on--> recovering --`change`--> training
///   halting, still, recovering --another loss, or no way on--> halting, by the next number
///   halting, still --a joining device is ready--> halting, by the next number, with it
///
/// A process is killed, which is a loss like any other, if it does not hear the order within
/// `kHearing`, or has not halted `kHearing` after the timeout of a wait. A process whose host
/// carries bytes of a checkpoint counts as having heard: its answers may wait behind them.
class Membership {
 public:
  static constexpr Seconds kHearing{0.5};

  /// The table outlives this object; `timeout`: of a wait for a peer.
  Membership(DeviceTable& devices, Seconds timeout) : devices_(devices), timeout_(timeout) {}

  /// Handles the end of a process. False: the job ends, too: nobody is left, or not all were ready.
  bool lose(int process, Seconds now);
  void on_event(const run::WorkerEvent& event, Seconds now);

  /// Takes over a lost coordinator's processes: halts all that are ready, with later numbers.
  /// `since`: when they lost it.
  void take_over(int number, Seconds since, Seconds now);

  /// Adds a device, or finds the one of that name, which the new one replaces. Returns its process,
  /// which must be started.
  int add(const run::WorkerDevice& device);
  /// Has a process started. False: it lives.
  bool start(int process);
  /// A process is no longer needed: it does not count as living, and its end is no loss.
  void dismiss(int process);
  /// Kills a process as if somebody else had.
  void kill(int process) { orders_.push_back(KillProcess{process}); }

  /// The next order; none: nothing to do now.
  std::optional<Order> next(Seconds now);
  /// Where all processes stand; none: not all stand still.
  std::optional<std::vector<run::RecoveryState>> still() const;
  /// The processes were told how to continue.
  void go_on(Seconds now);

  bool is_training() const { return phase_ == Phase::kTraining; }
  /// Some have done all their work.
  bool is_over() const { return is_over_; }
  /// Since when they do not train.
  Seconds since() const { return since_; }

 private:
  enum class Phase { kTraining, kHalting, kRecovering };
  void halt(Seconds now);
  void kill_unheard(Seconds now);

  DeviceTable& devices_;
  Seconds timeout_;
  Phase phase_ = Phase::kTraining;
  bool has_begun_ = false, is_over_ = false;
  int number_ = 0;
  Seconds since_, told_;
  std::vector<Order> orders_;
};

}  // namespace motley::job
