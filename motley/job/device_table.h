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
  kAbsent,
  kJoining,
  kWorking,    ///< its process is ready: it trains, or no plan needs it
  kLeaving,    ///< like kWorking, until a plan without it runs
  kDismissed,  ///< no longer needed; its process is being killed
  kDone,
};

/// The state of one device of a job. A generation is a plan that the job runs, numbered by the
/// change that brought it (run/change.h).
struct DeviceState {
  std::string name;
  Life life = Life::kAbsent;
  bool has_rejoined = false;       ///< a process was started for it since the job began
  std::optional<int> generation;   ///< running when it joined; none: it was there from the start
  bool awaits_plan = false;        ///< has joined, and no plan was made with it yet
  bool awaits_generation = false;  ///< has joined, and does not know yet which program runs
  bool was_told = false;
  bool returns = false;  ///< start it again as soon as it has no process
  /// The text of a joining device that the job did not have (joiner.h), until it first takes part.
  std::optional<std::string> text;
  bool is_priced = true;                     ///< plans may use it
  std::optional<Error> why;                  ///< the unrequested reason why it does not take part
  bool heard = false;                        ///< has heard the last order to halt
  bool is_killed = false;                    ///< because it did not answer that order
  std::optional<run::RecoveryState> stands;  ///< where it stands, as it answered
  std::optional<Seconds> carried;            ///< when bytes of a checkpoint last came through it

  bool has_process() const { return life != Life::kAbsent; }
  bool lives() const { return life == Life::kWorking || life == Life::kLeaving; }
  /// May plans rely on it?
  bool stays() const { return life == Life::kWorking && is_priced; }
};

struct DeviceStatus {
  std::string name;
  std::string state;         ///< training, idle, coming, leaving or absent
  std::optional<Error> why;  ///< the unrequested reason why it does not train
  bool has_come = true;
};

/// The devices of a job by process: the only record of their lives. Knows no time and no plan.
class DeviceTable {
 public:
  /// `absent`: devices without a process at first. The processes of the others start.
  DeviceTable(const std::vector<std::string>& devices, const std::vector<std::string>& absent);

  /// Adds a device, or finds the one of that name, which the new one replaces. Returns its process.
  int add(const std::string& device);
  /// False: it already has a process.
  bool start(int process);
  /// False: its process was not starting.
  bool become_ready(int process);
  void leave(int process);
  /// Keeps one device that was to leave, or all of them.
  void stay(int process);
  void stay();
  /// False: it has no process.
  bool dismiss(int process);
  void finish(int process);
  /// The process has ended, and its state is cleared. Returns the life that it had.
  Life lose(int process);

  int size() const { return static_cast<int>(states_.size()); }
  DeviceState& operator[](int process) { return states_[static_cast<std::size_t>(process)]; }
  const DeviceState& operator[](int process) const {
    return states_[static_cast<std::size_t>(process)];
  }
  std::vector<DeviceState>& all() { return states_; }
  const std::vector<DeviceState>& all() const { return states_; }
  std::optional<int> find(const std::string& device) const;
  bool lives(const std::string& device) const;
  /// Ascending.
  std::vector<int> living() const;
  /// Names and processes of the devices that satisfy a condition.
  using Named = std::map<std::string, int>;
  Named where(const std::function<bool(const DeviceState&)>& is_so) const;
  /// `used`: devices of the running plan.
  std::vector<DeviceStatus> statuses(const std::set<std::string>& used) const;

 private:
  std::vector<DeviceState> states_;
};

}  // namespace motley::job
