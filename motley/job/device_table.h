#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/run/recovery.h"

namespace motley::job {

/// Where a device is in its life with a job.
///
///   absent --start--> joining --become_ready--> working <--stay, leave--> leaving
///   any but absent --dismiss--> dismissed
///   any but absent, dismissed --finish--> done
///   any --lose--> absent
enum class Life {
  kAbsent,     ///< it has no process
  kJoining,    ///< its process starts
  kWorking,    ///< its process is ready: it trains, or is a standby that no plan needs
  kLeaving,    ///< likewise, until a plan without it runs
  kDismissed,  ///< it is not needed any more; its process is being killed
  kDone,       ///< its process has done all that was to be done
};

/// All that is known of one device of a job. A generation is a plan by which the job runs, by the
/// number of the change that brought it (run/change.h).
struct DeviceState {
  std::string name;
  Life life = Life::kAbsent;
  bool has_rejoined = false;        ///< a process was started for it since the job began
  std::optional<int> generation;    ///< that ran when it came; none: it is there from the first
  bool awaits_plan = false;         ///< it has come, and no plan was made with it yet
  bool awaits_generation = false;   ///< it has come, and was not told yet which program runs
  bool was_told = false;            ///< its process was told of a change
  bool returns = false;             ///< to be started as soon as it has no process
  std::optional<std::string> text;  ///< of a joining device, that the job had not (joiner.h), until
                                    ///< it takes part for the first time
  bool is_priced = true;            ///< plans can be made with it
  std::optional<Error> why;         ///< it does not take part, where that was not asked for
  bool heard = false;               ///< the last order to halt
  bool is_killed = false;           ///< as it did not answer that
  std::optional<run::RecoveryState> stands;  ///< where, as it answered
  std::optional<Seconds> carried;            ///< when bytes of a checkpoint came last by its way

  bool has_process() const { return life != Life::kAbsent; }
  bool lives() const { return life == Life::kWorking || life == Life::kLeaving; }
  /// Plans may count on it.
  bool stays() const { return life == Life::kWorking && is_priced; }
};

/// What people are told of a device.
struct DeviceStatus {
  std::string name;
  std::string state;         ///< training, idle, coming, leaving or absent
  std::optional<Error> why;  ///< it does not train, where that was not asked for
  bool has_come = true;      ///< or did so once
};

/// The devices of a job, by process: the one place where it says who is there. Knows no time, no
/// process and no plan.
class DeviceTable {
 public:
  /// `absent`: those without a process at the beginning. Processes of the others start.
  DeviceTable(const std::vector<std::string>& devices, const std::vector<std::string>& absent);

  /// The job has got a device, or, where it has one of that name, that is another now. Its number.
  int add(const std::string& device);
  /// False: it has a process.
  bool start(int process);
  /// False: it did not start, or has done so.
  bool become_ready(int process);
  void leave(int process);
  /// One that was to leave stays; or all do.
  void stay(int process);
  void stay();
  /// False: it has no process.
  bool dismiss(int process);
  void finish(int process);
  /// Its process has ended, and what that knew is gone. What it was.
  Life lose(int process);

  int size() const { return static_cast<int>(states_.size()); }
  DeviceState& operator[](int process) { return states_[static_cast<std::size_t>(process)]; }
  const DeviceState& operator[](int process) const {
    return states_[static_cast<std::size_t>(process)];
  }
  std::vector<DeviceState>& all() { return states_; }
  const std::vector<DeviceState>& all() const { return states_; }
  std::optional<int> find(const std::string& device) const;
  /// Does a device of that name live?
  bool lives(const std::string& device) const;
  /// Processes that live, in order.
  std::vector<int> living() const;
  /// Names and processes of those of whom that is so.
  using Named = std::map<std::string, int>;
  Named where(const std::function<bool(const DeviceState&)>& is_so) const;
  /// What is told of each; `used`: devices of the plan that runs.
  std::vector<DeviceStatus> statuses(const std::set<std::string>& used) const;

 private:
  std::vector<DeviceState> states_;
};

}  // namespace motley::job
