#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "motley/control/clock.h"
#include "motley/control/listener.h"
#include "motley/control/run_directory.h"
#include "motley/control/training/adaptation.h"
#include "motley/control/training/availability_trace.h"
#include "motley/control/training/candidates.h"
#include "motley/control/training/decision_log.h"
#include "motley/job/controller.h"
#include "motley/run/job.h"

namespace motley::control {

/// Drives a job's controller (job/controller.h) while a training runs: with its clock, its steps as
/// observations, its candidates as plans, and its directory, where decisions, the plan that runs
/// and joining devices are kept. Its listener hears all that it does.
class Adapting : public Listener, private job::Surroundings {
 public:
  /// All outlive it; the job's devices are those of the adaptation.
  Adapting(Adaptation& adaptation, const Inputs& inputs, const RunDirectory& directory,
           const run::Job& job, const Clock& clock, Listener& listener);
  Adapting(const Adapting&) = delete;
  Adapting& operator=(const Adapting&) = delete;

  /// Has given changes prepared. Decisions come behind those of the run that is continued.
  Result<void> open();

  void note(const std::string& line) override { listener_.note(line); }
  Result<void> phase(Phase phase, const std::function<std::string()>& text) override {
    return listener_.phase(phase, text);
  }
  Wish step(const StepReport& report) override;
  void on_event(const run::WorkerEvent& event);  ///< `change`, `refused`, `checkpoint`
  /// Tells the policy, if there is one, what no event says: devices that are gone or come.
  void observe(const policy::Observation& seen, std::int64_t steps_done) {
    controller_.observe(seen, steps_done);
  }
  /// Keeps a decision by which no plan begins.
  void record(policy::Decision decision) { controller_.record(std::move(decision)); }
  std::optional<job::Order> next_order();  ///< what workers are to be told
  /// A process of an elastic job has ended, or will, for this reason. False: so does the job.
  bool on_loss(int process, const Error& error) {
    return controller_.on_loss(process, error, now());
  }
  /// Why the training cannot go on by any plan; none: it can.
  const std::optional<Error>& fault() const { return controller_.fault(); }
  const std::vector<job::MembershipChange>& membership() const { return controller_.membership(); }

  // What others ask of an elastic job. Usage errors; infeasible ones where it could not go on.
  /// The device is left out from one of the next steps on, and its process ended.
  Result<void> release(const std::string& device) { return controller_.release(device, now()); }
  /// A process is started for the device, which takes part when it is ready; or for one that the
  /// job has not, after which it has (joiner.h).
  Result<void> take_in(const std::string& device) { return controller_.take_in(device); }
  Result<void> welcome(const cluster::Cluster& joiner);
  std::vector<job::DeviceStatus> device_states() const;
  std::int64_t steps_done() const { return controller_.steps_done(); }
  /// Another coordinator is to know this, too, under that key; asked for whenever it is told.
  void leave_also(const std::string& key, std::function<Json()> what);
  const std::string& version() const { return choices_.version; }  ///< of all its processes
  /// No more events come. Traces that ranks left are put in the order of the last plan.
  Result<void> end(bool has_traces);
  /// Of the job's devices those of the plan that runs, by rank.
  std::vector<run::WorkerDevice> current_devices() const;
  /// By which the training goes on.
  const Candidate& current() const { return candidates_[current_index()]; }
  int current_index() const { return controller_.generations().current(); }

 private:
  void log_plan(policy::Decision decision, int plan, Begins begins) override;
  void log_decision(policy::Decision decision) override;
  void look_ahead() override;
  void keep_joiner(const std::string& text) override;
  Result<std::string> bring_checkpoint() override;
  run::Recovery open_checkpoint(const std::string& path) override;

  job::ControllerOptions controller_options();
  job::Takeover take_over();
  Seconds now() const { return choices_.replan ? clock_.steady() : Seconds(0); }
  void warn(const Result<void>& done);
  void make_ahead();
  void follow_absences();
  Json will() const;
  std::string policy_text() const;

  Adaptation& choices_;
  const Inputs& inputs_;
  const RunDirectory& directory_;
  run::Job job_;  // with the devices that came to it
  const Clock& clock_;
  Listener& listener_;
  Candidates candidates_;
  job::Controller controller_;
  DecisionLog log_;
  int logged_ = 0;                                 // the plan whose steps come now
  std::map<std::int64_t, policy::StepSeen> seen_;  // what ranks said of steps that are not done
  std::map<std::string, std::function<Json()>> also_left_;
  std::string said_;  // of what losses cost
  std::optional<Seconds> first_step_at_;
  AvailabilityTrace absences_;  // that conditions make
};

}  // namespace motley::control
