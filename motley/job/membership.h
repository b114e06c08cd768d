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

/// Devices that came, left or were lost at one time.
struct MembershipChange {
  std::int64_t step = 0;  ///< steps done then
  std::vector<std::string> lost, left, joined;
  Seconds pause;                ///< from when it was noticed until training went on
  std::int64_t lost_steps = 0;  ///< that were done, or had begun, and were done again
};
Json membership_to_json(const std::vector<MembershipChange>& changes);

/// How the devices of an elastic job come to stand still together when some are lost. Is told what
/// happened and when, moves devices through their lives, and says what to do; knows no process and
/// no plan.
///
///   training --a loss, or a process that cannot get on--> halting: all living are told to halt
///   halting --all living have said where they stand--> still: somebody decides how they go on
///   still --go_on--> recovering --`change`--> training
///   halting, still, recovering --another loss, or no way on--> halting, by the next number
///   halting, still --a joining device is ready--> halting, by the next number, with it
///
/// Who does not even hear that it is told to halt within `kHearing`, or hears and does not come to
/// stand within the timeout of a wait, is killed, and its end is a loss as any other. Words that
/// wait behind a checkpoint on its way from another host are waited for as long as that comes.
class Membership {
 public:
  static constexpr Seconds kHearing{0.5};

  /// The table outlives it; `timeout`: that a wait for a peer may take.
  Membership(DeviceTable& devices, Seconds timeout) : devices_(devices), timeout_(timeout) {}

  /// A process has ended or will. False: with it the job ends, as nobody is left, or as not all
  /// were ready yet.
  bool lose(int process, Seconds now);
  void on_event(const run::WorkerEvent& event, Seconds now);

  /// They were another coordinator's, which is gone: all that have said that they are ready come to
  /// stand, by numbers beyond this one. `since`: when they were left alone.
  void take_over(int number, Seconds since, Seconds now);

  /// The job has got a device, or, where it has one of that name, that is another now. Its process,
  /// which is to be started by itself.
  int add(const run::WorkerDevice& device);
  /// A process is to be started. False: it lives.
  bool start(int process);
  /// A process is not needed any more: it does not live from now on, and its end will be no loss.
  void dismiss(int process);
  /// A process is to be killed, as by somebody else.
  void kill(int process) { orders_.push_back(KillProcess{process}); }

  /// What is to be done next; none: nothing for now.
  std::optional<Order> next(Seconds now);
  /// All stand still: where. None: they do not.
  std::optional<std::vector<run::RecoveryState>> still() const;
  /// They were told how to go on.
  void go_on(Seconds now);

  bool is_training() const { return phase_ == Phase::kTraining; }
  /// Some have done all that was to be done.
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
  int number_ = 0;  // of the last order to halt
  Seconds since_, told_;
  std::vector<Order> orders_;  // not given yet
};

}  // namespace motley::job
