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

/// A job that another process led, which is gone.
struct Takeover {
  std::map<int, int> plans;         ///< by generation, any of which may run; one at least
  std::vector<std::string> living;  ///< devices that had a process
  int halts = 0;                    ///< numbers of orders to halt that may have been used
  Seconds alone;                    ///< since when nobody leads
  std::int64_t done = 0;            ///< steps
  std::int64_t saved_step = -1;     ///< of its last checkpoint, wherever that is
};

struct ControllerOptions {
  std::vector<std::string> devices;      ///< by process
  std::vector<std::string> absent = {};  ///< of them, those that have no process at first
  int first_plan = 0;
  /// It goes on when devices are lost, leave or come.
  bool is_elastic = false;
  bool has_standbys = false;         ///< hosts that may lead on when this process is lost
  Seconds timeout{30};               ///< that a wait for a peer may take
  std::int64_t counts_every = 1;     ///< steps, one of which measures noise
  policy::Policy* policy = nullptr;  ///< decides on plans; null: nobody does
  std::optional<Takeover> takeover = {};
};

/// Decides what happens next to a job: when a device is lost, leaves or comes, when a policy wants
/// another plan, when a change begins or is refused, when the process that led is lost. Events go
/// in, with the time; orders come out, in order, until there are none. Knows no clock, process,
/// file or socket: a run drives it, and so does a rehearsal.
///
/// A loss: on_loss, Halt to all that live; `halted` of each; a change with a recovery, to a plan
/// without what was lost; `change`. An arrival: take_in, StartProcess; `ready`; Follow and a change
/// to a plan with it. Who leaves (release): a change to a plan without it, then KillProcess.
class Controller {
 public:
  /// All outlive it.
  Controller(const ControllerOptions& options, Plans& plans, Surroundings& around);
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  /// A process, or the launcher (rank -1), says something.
  void on_event(const run::WorkerEvent& event, Seconds now);
  /// A process has ended, or will, for this reason. False: so does the job.
  bool on_loss(int process, const Error& error, Seconds now);
  /// Processes have done a step.
  void on_step(std::int64_t step, Seconds took);
  /// Tells the policy, if there is one; what it wants is asked for.
  void observe(const policy::Observation& seen, std::int64_t steps_done);
  /// Asks for a plan that was decided on elsewhere. An error was told.
  Result<void> ask(int plan, policy::Decision decision);
  /// Keeps a decision by which no plan begins.
  void record(policy::Decision decision);
  /// The latest checkpoint that is here.
  void on_checkpoint(const std::string& path, std::int64_t step);

  /// The device is left out from one of the next steps on, and its process ended. Usage errors;
  /// infeasible ones where the job could not go on.
  Result<void> release(const std::string& device, Seconds now);
  /// A process is started for the device, which takes part when it is ready. Usage errors.
  Result<void> take_in(const std::string& device);
  /// May a device come that the job has not? Usage errors.
  Result<void> check_joiner(const std::string& device) const;
  /// It does, as `text` says; its process is to be started. Returns that.
  int add(const run::WorkerDevice& device, const std::string& text);
  /// One that somebody else takes away, or brings back as soon as its process has ended.
  void take_away(const std::string& device);
  void bring_back(const std::string& device);

  /// What is to be done next; none: nothing for now. The state that `Leave` leaves is put in by
  /// who asks.
  std::optional<Order> next(Seconds now);
  /// What is left with standby hosts is not all any more.
  void renew_standbys() { coordinator_.renew(); }

  const DeviceTable& devices() const { return devices_; }
  const Generations& generations() const { return generations_; }
  /// Devices that live and stay, by process.
  std::vector<std::string> present() const;
  std::int64_t steps_done() const { return done_; }
  Seconds spent() const { return Seconds(spent_); }  ///< by steps
  std::int64_t counts_every() const { return counts_every_; }
  std::int64_t saved_step() const;  ///< of the last checkpoint, wherever that is
  const std::vector<MembershipChange>& membership() const { return membership_; }
  /// Why the job cannot go on by any plan; none: it can.
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
  std::deque<run::Change> ready_;  // to be given to workers
  std::int64_t counts_every_;
  bool tells_counting_;  // workers are to be told
  double spent_ = 0;     // seconds of steps
  std::int64_t done_ = 0;
  run::TrainingPoint saved_;  // of it the latest checkpoint that is here
  std::vector<MembershipChange> membership_;
  MembershipChange coming_;  // since training went on last
  bool leads_on_ = false;    // where another led
  std::optional<Error> fault_;
};

}  // namespace motley::job
