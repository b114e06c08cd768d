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

/// Drives a job's controller (job/controller.h) during training: feeds it time and steps, offers
/// candidates as plans, writes decisions, running plan and joining devices to the run directory.
class Adapting : public Listener, private job::Surroundings {
 public:
  /// All arguments outlive it; the job's devices are the adaptation's.
  Adapting(Adaptation& adaptation, const Inputs& inputs, const RunDirectory& directory,
           const run::Job& job, const Clock& clock, Listener& listener);
  Adapting(const Adapting&) = delete;
  Adapting& operator=(const Adapting&) = delete;

  /// Requests the given changes. New decisions follow those of the continued run.
  Result<void> open();

  void note(const std::string& line) override { listener_.note(line); }
  Result<void> phase(Phase phase, const std::function<std::string()>& text) override {
    return listener_.phase(phase, text);
  }
  Wish step(const StepReport& report) override;
  void on_event(const run::WorkerEvent& event);  ///< `change`, `refused`, `checkpoint`
  /// Notifies the policy, if there is one, of devices that no event reports as lost or joined.
  void observe(const policy::Observation& seen, std::int64_t steps_done) {
    controller_.observe(seen, steps_done);
  }
  void record(policy::Decision decision) { controller_.record(std::move(decision)); }
  std::optional<job::Order> next_order();
  /// Handles the end of an elastic job's process, past or imminent. False: the job ends, too.
  bool on_loss(int process, const Error& error) {
    return controller_.on_loss(process, error, now());
  }
  /// Why training cannot continue by any plan; none: it can.
  const std::optional<Error>& fault() const { return controller_.fault(); }
  const std::vector<job::MembershipChange>& membership() const { return controller_.membership(); }

  // Requests to an elastic job. Usage errors; infeasible if it could not continue.
  /// Leaves the device out from one of the next steps on, then ends its process.
  Result<void> release(const std::string& device) { return controller_.release(device, now()); }
  /// `take_in` starts a process for a device, which takes part once ready. `welcome` first adds a
  /// device that the job does not have (joiner.h).
  Result<void> take_in(const std::string& device) { return controller_.take_in(device); }
  Result<void> welcome(const cluster::Cluster& joiner);
  std::vector<job::DeviceStatus> device_states() const;
  std::int64_t steps_done() const { return controller_.steps_done(); }
  /// Adds `what`, evaluated at each replication, to the state on standby hosts under `key`.
  void leave_also(const std::string& key, std::function<Json()> what);
  const std::string& version() const { return choices_.version; }  ///< of all its processes
  /// Ends after the last event. Traces from ranks are put in the order of the last plan.
  Result<void> end(bool has_traces);
  std::vector<run::WorkerDevice> current_devices() const;
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
  run::Job job_;  // including devices that joined
  const Clock& clock_;
  Listener& listener_;
  Candidates candidates_;
  job::Controller controller_;
  DecisionLog log_;
  int logged_ = 0;                                 // the plan of the next steps to be logged
  std::map<std::int64_t, policy::StepSeen> seen_;  // ranks' reports on incomplete steps
  std::map<std::string, std::function<Json()>> also_left_;
  std::string said_;  // last note on the cost of losses
  std::optional<Seconds> first_step_at_;
  AvailabilityTrace absences_;
};

}  // namespace motley::control
