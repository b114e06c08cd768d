#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "motley/job/coordinator.h"
#include "motley/job/device_table.h"
#include "motley/job/generations.h"
#include "motley/job/membership.h"
#include "motley/job/order.h"
#include "motley/job/surroundings.h"
#include "motley/policy/policy.h"

namespace motley::job {

/// The state of a job whose coordinator was lost.
struct Takeover {
  std::map<int, int> plans;         ///< by generation, any of which may run; at least one
  std::vector<std::string> living;  ///< devices that had a process
  int halts = 0;                    ///< highest number that an order to halt may have used
  Seconds alone;                    ///< how long the job has had no coordinator
  std::int64_t done = 0;            ///< steps
  std::int64_t saved_step = -1;     ///< of the last checkpoint, wherever it is
};

struct ControllerOptions {
  std::vector<std::string> devices;      ///< by process
  std::vector<std::string> absent = {};  ///< devices without a process at first
  int first_plan = 0;
  bool is_elastic = false;
  bool has_standbys = false;         ///< hosts can take over if this process is lost
  Seconds timeout{30};               ///< of a wait for a peer
  std::int64_t counts_every = 1;     ///< measures noise every this many steps
  policy::Policy* policy = nullptr;  ///< chooses plans; null: none does
  std::optional<Takeover> takeover = {};
};

/// Decides what happens next to a job when a device is lost, leaves or joins, when a policy wants
/// another plan, when a change begins or is refused, and when the coordinator is lost. Events go in
/// with their time; orders come out one by one until there are none. Knows no clock, process, file
/// or socket, so both runs and rehearsals drive it.
///
/// A loss: on_loss; Halt to all living processes; `halted` from each; a change with a recovery to a
/// plan without the lost device; `change`. An arrival: take_in; StartProcess; `ready`; Follow and a
/// change to a plan with it. A departure: release; a change to a plan without it; KillProcess.
class Controller {
 public:
  /// All arguments outlive the controller.
  Controller(const ControllerOptions& options, Plans& plans, Surroundings& around);
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  /// Handles an event of a process, or of the launcher (rank -1).
  void on_event(const run::WorkerEvent& event, Seconds now);
  /// Handles the end of a process, past or imminent. False: the job ends, too.
  bool on_loss(int process, const Error& error, Seconds now);
  /// Counts a completed step.
  void on_step(std::int64_t step, Seconds took);
  /// Notifies the policy, if there is one, and asks for what it chooses.
  void observe(const policy::Observation& seen, std::int64_t steps_done);
  /// Asks for a plan that was chosen elsewhere. Notes any error before returning it.
  Result<void> ask(int plan, policy::Decision decision);
  /// Logs a decision that begins no plan.
  void record(policy::Decision decision);
  /// Records the latest checkpoint on this host.
  void on_checkpoint(const std::string& path, std::int64_t step);

  /// Leaves the device out from one of the next steps on, then ends its process. Usage errors;
  /// infeasible if the job could not continue.
  Result<void> release(const std::string& device, Seconds now);
  /// Starts a process for the device, which takes part once it is ready. Usage errors.
  Result<void> take_in(const std::string& device);
  /// Checks whether a device that the job does not have may join. Usage errors.
  Result<void> check_joiner(const std::string& device) const;
  /// Adds a joining device described by `text`. Returns its process, which must be started.
  int add(const run::WorkerDevice& device, const std::string& text);
  /// A device that somebody else takes away, or brings back as soon as its process has ended.
  void take_away(const std::string& device);
  void bring_back(const std::string& device);

  /// Returns the next order; none: nothing to do now. The caller fills in the state of `Leave`.
  std::optional<Order> next(Seconds now);
  /// Marks the state on standby hosts as outdated.
  void renew_standbys() { coordinator_.renew(); }

  const DeviceTable& devices() const { return devices_; }
  const Generations& generations() const { return generations_; }
  /// Living devices that stay, by process.
  std::vector<std::string> present() const;
  std::int64_t steps_done() const { return done_; }
  Seconds spent() const { return Seconds(spent_); }  ///< on steps
  std::int64_t counts_every() const { return counts_every_; }
  std::int64_t saved_step() const;  ///< of the last checkpoint, wherever it is
  const std::vector<MembershipChange>& membership() const { return membership_; }
  /// Why the job cannot continue by any plan; none: it can.
  const std::optional<Error>& fault() const { return fault_; }

 private:
  void take(std::vector<policy::Choice> choices, std::int64_t steps_done);
  void take_plan(policy::Decision decision);
  void refuse(const Generations::Asked& asked, const std::string& why);
  void see_devices(const run::WorkerEvent& event, Seconds now);
  void settle_membership(std::int64_t step, Seconds pause, Seconds now);
  std::optional<Order> next_of_devices(Seconds now);
  std::optional<Order> find_order(Seconds now);
  void lead_on(Seconds now);
  std::optional<Order> go_on_after_halt(const std::vector<run::RecoveryState>& recovery_states,
                                        Seconds now);
  Result<run::Change> recover(const std::vector<run::RecoveryState>& recovery_states,
                              bool may_lead);
  Result<run::Change> recover_from(run::Recovery recovery, int from, int to);
  Result<run::Change> give_up(run::Recovery recovery, int from, const Error& why);
  run::Recovery fall_back(const Error& why, std::int64_t done);
  Result<void> check_way_back(const run::Recovery& recovery) const;
  policy::Decision decide(int plan, std::string why) const;
  Result<int> plan_for(const std::vector<std::string>& devices);
  std::optional<int> plan_of_policy();
  bool may_begin(int plan) const;
  void take_arrivals();
  void know_joiner(DeviceState& device);
  run::Change give(run::Change change);
  std::optional<std::set<std::string>> there() const;
  DeviceTable::Named arrived() const;

  const ControllerOptions options_;
  Plans& plans_;
  Surroundings& around_;
  DeviceTable devices_;
  Membership members_{devices_, options_.timeout};
  Generations generations_;
  Coordinator coordinator_;
  std::deque<run::Change> ready_;  // not yet given to workers
  std::int64_t counts_every_;
  bool tells_counting_;  // workers must learn counts_every_
  double spent_ = 0;     // seconds of steps
  std::int64_t done_ = 0;
  run::TrainingPoint saved_;  // the latest checkpoint on this host
  std::vector<MembershipChange> membership_;
  MembershipChange coming_;  // since training last resumed
  bool leads_on_ = false;    // has begun to lead where another process led
  std::optional<Error> fault_;
};

}  // namespace motley::job
