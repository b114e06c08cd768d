#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "motley/control/adaptation.h"
#include "motley/control/clock.h"
#include "motley/control/listener.h"
#include "motley/control/presence.h"
#include "motley/control/ready_plans.h"
#include "motley/control/run_directory.h"
#include "motley/job/coordinator.h"
#include "motley/job/device_table.h"
#include "motley/job/membership.h"
#include "motley/policy/decision.h"
#include "motley/run/change.h"
#include "motley/run/job.h"

namespace motley::control {

/// Decides while a training runs, by a policy: sees its steps, has what that asks for prepared, and
/// keeps what was decided and came of it in decisions.jsonl. Its listener hears all that it does.
class Adapting : public Listener {
 public:
  /// All outlive it; the job's devices are those of the adaptation.
  Adapting(Adaptation& adaptation, const Inputs& inputs, const RunDirectory& directory,
           const run::Job& job, const Clock& clock, Listener& listener);

  /// Has given changes prepared. Decisions come behind those of the run that is continued.
  Result<void> open();

  void note(const std::string& line) override { listener_.note(line); }
  Result<void> phase(Phase phase, const std::function<std::string()>& text) override {
    return listener_.phase(phase, text);
  }
  Wish step(const StepReport& report) override;
  void on_event(const run::WorkerEvent& event);  ///< `change`, `refused`, `checkpoint`
  /// Tells the policy, if there is one, what no event says: devices that are gone or come.
  void observe(const policy::Observation& seen, std::int64_t steps_done);
  void record(policy::Decision decision);  ///< keeps one by which no plan begins
  std::optional<job::Order> next_order();  ///< what workers are to be told
  /// A process of an elastic job has ended, or will, for this reason. False: so does the job.
  bool on_loss(int process, const Error& error);
  /// Why the training cannot go on by any plan; none: it can.
  const std::optional<Error>& fault() const { return fault_; }
  const std::vector<job::MembershipChange>& membership() const { return membership_; }

  // What others ask of an elastic job. Usage errors; infeasible ones where it could not go on.
  /// The device is left out from one of the next steps on, and its process ended.
  Result<void> release(const std::string& device);
  /// A process is started for the device, which takes part when it is ready; or for one that the
  /// job has not, after which it has (newcomer.h).
  Result<void> take_in(const std::string& device);
  Result<void> welcome(const cluster::Cluster& newcomer);
  std::vector<job::DeviceStatus> device_states() const;
  std::int64_t steps_done() const { return done_; }
  /// Another lead is to know this, too, under that key; asked for whenever it is told.
  void leave_also(const std::string& key, std::function<Json()> what);
  const std::string& version() const { return choices_.version; }  ///< of all its processes
  /// No more events come. Traces that ranks left are put in the order of the last plan.
  Result<void> end(bool has_traces);
  /// Of the job's devices those of the plan that runs, by rank.
  std::vector<run::WorkerDevice> current_devices() const;
  /// By which the training goes on.
  const Candidate& current() const { return candidates_[static_cast<std::size_t>(current_)]; }
  int current_index() const { return current_; }

 private:
  void take(std::vector<policy::Choice> choices, std::int64_t steps_done);
  Result<int> find_candidate(const policy::Action& action);
  Result<void> ask(int candidate, policy::Decision decision);
  Result<void> make_programs(Candidate& candidate) const;
  void make_ahead();
  Result<run::Change> make_change(int from, int to, const std::set<std::string>& lost);
  Result<int> keep_candidate(Result<Candidate> made);
  Result<run::Change> begin_change(int candidate);
  void take_over();
  void lead_on();
  void stay_as_they_are();
  job::DeviceTable::Named arrived() const;
  std::optional<job::Order> find_order();
  std::optional<job::Order> go_on_after_halt(const std::vector<run::Standing>& standings);
  Json will() const;
  policy::Decision decide(int plan, std::string why) const;
  Result<int> plan_for(const std::vector<DeviceId>& devices);
  std::optional<int> plan_of_policy();
  std::vector<DeviceId> present() const;
  bool may_begin(int candidate) const;
  Result<run::Change> recover(const std::vector<run::Standing>& standings, bool may_lead);
  Result<run::Change> recover_from(run::Recovery recovery, int from, int to);
  Result<run::Change> give_up(run::Recovery recovery, int from, const Error& why);
  run::Recovery fall_back(const Error& why, std::int64_t done);
  void note_membership(const run::WorkerEvent& event);
  void settle_membership(std::int64_t step, Seconds pause);
  void look_ahead();
  void take_arrivals();
  void know_newcomer(job::DeviceState& device);
  void follow_absences();
  std::string policy_text() const;
  void keep(policy::Decision decision);
  void note_outcome();
  void write_decisions();

  Adaptation& choices_;
  std::deque<Candidate>& candidates_;
  const Inputs& inputs_;
  const RunDirectory& directory_;
  run::Job job_;  // with the devices that came to it
  const Clock& clock_;
  Listener& listener_;
  int current_ = 0, number_ = 0;         // that runs; of the last change that was asked for
  std::map<int, AskedChange> asked_;     // by number of the change; that has not begun
  std::map<int, int> begun_, numbered_;  // by number: the candidate; of all that were asked for
  std::deque<run::Change> ready_;        // to be given to workers
  bool tells_counting_;                  // workers are to be told
  const std::size_t found_;              // candidates that were there when it began
  std::size_t made_ahead_ = 0;           // of these, whose programs were made
  std::vector<policy::Decision> kept_;   // the last decision on a plan, and words since
  std::uintmax_t settled_ = 0;           // bytes of the file before them
  std::map<std::int64_t, policy::StepSeen> seen_;  // what ranks said of steps that are not done
  std::vector<double> steps_;                      // of the plan that runs
  double spent_ = 0;                               // seconds of steps
  std::int64_t done_ = 0;                          // steps
  job::DeviceTable devices_;
  std::optional<job::Membership> members_;  // of an elastic job, as all that follows
  std::vector<job::MembershipChange> membership_;
  job::MembershipChange coming_;  // since training went on last
  std::map<std::string, std::function<Json()>> also_left_;
  std::string said_;          // of what losses cost
  run::TrainingPoint saved_;  // of it the latest checkpoint that is here
  std::optional<Seconds> first_step_at_;
  Presence absences_;  // that conditions make
  job::Coordinator coordinator_;
  bool leads_on_ = false;  // where another led
  std::optional<Error> fault_;
  std::optional<ReadyPlans> ahead_;
};

}  // namespace motley::control
