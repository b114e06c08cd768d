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

#include "motley/control/clock.h"
#include "motley/control/listener.h"
#include "motley/control/membership.h"
#include "motley/control/planning.h"
#include "motley/control/prediction.h"
#include "motley/control/run_directory.h"
#include "motley/policy/decision.h"
#include "motley/policy/policy.h"
#include "motley/run/change.h"
#include "motley/run/job.h"
#include "motley/simulate/conditions.h"

namespace motley::control {

/// A plan that a training may go on by, with the same batch and result as the others. Its programs
/// are made when it is asked for, and let go when another one runs.
struct Candidate {
  std::string label;                   ///< "the batch split 24:12:4"
  Planned planned;                     ///< without a program: not made yet
  std::optional<Seconds> priced = {};  ///< a step, where the plan was found
  std::vector<program::Program> evaluations = {};
  std::optional<Predicted> predicted = {};
  std::optional<Seconds> measured = {};  ///< median of its last steps in this run
};

/// "the batch split 20:14:6", "operators split over 3 devices", "2 stages", "a:0 alone".
std::string describe_plan(const plan::Plan& plan, const cluster::Cluster& cluster);

/// How a training may change while it runs.
struct Adaptation {
  std::deque<Candidate> candidates;
  int first = 0;  ///< the candidate that runs first
  /// Decides; null: what is given is done, and nothing else.
  std::unique_ptr<policy::Policy> policy = nullptr;
  /// A new one for its candidates; null: it needs none.
  std::function<Result<std::unique_ptr<policy::Policy>>(const Adaptation&)> make_policy = nullptr;
  /// What another run decided, to be done again at the same steps, and the candidate of each.
  std::vector<policy::Decision> given = {};
  std::vector<int> given_candidates = {};

  /// Makes one of a split that a policy asks for; null: none does.
  std::function<Result<Candidate>(const std::vector<policy::Share>&)> split = nullptr;
  std::vector<DeviceId> spare = {};  ///< that a split may take, beside those of candidates
  /// The training goes on when devices are lost, come or leave: makes a plan for those that are
  /// there (replanning.h). Null: it ends with any of them.
  std::function<Result<Candidate>(const std::vector<DeviceId>&)> replan = nullptr;
  std::vector<std::string> absent = {};  ///< devices that are not there at the beginning
  int port = 0;                          ///< where newcomers and others ask; 0: any
  std::string version = "";              ///< of the program that runs
  /// Devices that go and come back: as of an emulated cluster (simulate/conditions.h).
  std::vector<simulate::Absence> absences = {};
  /// By which a candidate is predicted once it has a program; null: none is.
  std::shared_ptr<const search::Costs> costs = nullptr;
  /// Gives one that is made later the programs by which it evaluates; null: it does not.
  std::function<Result<void>(Candidate&)> complete = nullptr;

  /// Of the candidates, those of the one that runs first before others, and the spare ones.
  std::vector<DeviceId> devices() const;
};

/// Lines of decisions.jsonl (docs/formats/decisions.md).
Result<std::vector<policy::Decision>> read_decisions(const std::string& path);

/// Of what a checkpoint has of the policy that decided until then.
inline constexpr const char* kPolicySchema = "motley.policy/1";

/// Decides while a training runs, by a policy: sees its steps, has what the policy asks for
/// prepared, and keeps what was decided and what came of it in decisions.jsonl. Says to its own
/// listener what it does, and passes on all that it hears.
class Adapting : public Listener {
 public:
  /// All outlive it; the job's devices are those of the adaptation.
  Adapting(Adaptation& adaptation, const Inputs& inputs, const RunDirectory& directory,
           const run::Job& job, const Clock& clock, Listener& listener);

  /// Has given changes prepared. Decisions come behind those of the run that is continued; one that
  /// begins anew has none.
  Result<void> open();

  void note(const std::string& line) override { listener_.note(line); }
  void phase(Phase phase, const std::function<std::string()>& text) override {
    listener_.phase(phase, text);
  }
  Wish step(const StepReport& report) override;
  /// `change`, `refused` and `checkpoint` of workers.
  void on_event(const run::WorkerEvent& event);
  /// Tells the policy, if there is one, what no event says: devices that are gone or come.
  void observe(const policy::Observation& seen, std::int64_t steps_done);
  /// What workers are to be told next.
  std::optional<Order> next_order();
  /// A process of an elastic job has ended, or will, for this reason. False: so does the job.
  bool on_loss(int process, const Error& error);
  /// Why the training cannot go on by any plan; none: it can.
  const std::optional<Error>& fault() const { return fault_; }
  const std::vector<MembershipChange>& membership() const { return membership_; }

  // What others ask for while it trains, of an elastic job. Usage errors, and infeasible ones with
  // arithmetic where the others could not go on.

  /// The device is left out from one of the next steps on, and its process ended.
  Result<void> release(const std::string& device);
  /// A process is started for the device, which takes part when it is ready.
  Result<void> take_in(const std::string& device);
  /// Of the job's devices, by name: training, idle, coming, leaving or absent.
  std::vector<std::pair<std::string, std::string>> device_states() const;
  std::int64_t steps_done() const { return done_; }
  /// Whose programs its processes are; a newcomer must be of the same.
  const std::string& version() const { return choices_.version; }
  /// No more events come: writes what came of the last decision, and puts the traces that ranks
  /// left, if they did, in the order of the plan that ran last.
  Result<void> end(bool has_traces);
  /// Of the job's devices those of the plan that runs, by rank.
  std::vector<run::WorkerDevice> current_devices() const;

  /// By which the training goes on.
  const Candidate& current() const { return candidates_[static_cast<std::size_t>(current_)]; }
  int current_index() const { return current_; }

 private:
  struct Asked {
    int candidate = 0;
    policy::Decision decision;
  };
  void take(std::vector<policy::Choice> choices, std::int64_t steps_done);
  Result<int> find_candidate(const policy::Action& action);
  Result<void> ask(int candidate, policy::Decision decision);
  Result<void> make_programs(Candidate& candidate) const;
  Result<run::Change> make_change(int candidate);
  Result<run::Change> make_change(int from, int to, const std::set<std::string>& lost);
  Result<int> keep_candidate(Result<Candidate> made);
  Result<int> plan_for(const std::vector<DeviceId>& devices);
  std::optional<int> plan_of_policy();
  std::vector<DeviceId> present() const;
  bool uses_only_present(int candidate) const;
  Result<run::Change> recover(const std::vector<run::Standing>& standings);
  Result<run::Change> recover_from(run::Recovery recovery, int from, int to);
  Result<run::Change> give_up(run::Recovery recovery, int from, const Error& why);
  run::Recovery from_checkpoint() const;
  run::Recovery fall_back(const Error& why, std::int64_t done);
  void note_membership(const run::WorkerEvent& event);
  void dismiss_late();
  void settle_membership(std::int64_t step, Seconds pause);
  void take_arrivals();
  void follow_absences();
  Result<void> write_plan() const;
  Result<void> settle_traces() const;
  std::string policy_text() const;
  void take_parts(const run::WorkerEvent& event);
  void keep(policy::Decision decision);
  void note_outcome();
  std::optional<Seconds> last_outcome() const;
  void write_decisions();

  Adaptation& choices_;
  std::deque<Candidate>& candidates_;
  const Inputs& inputs_;
  const RunDirectory& directory_;
  const run::Job& job_;
  const Clock& clock_;
  Listener& listener_;
  int current_ = 0;                // that runs
  int number_ = 0;                 // of the last change that was asked for
  std::map<int, Asked> asked_;     // by number of the change; that has not begun
  std::map<int, int> begun_;       // by number: the candidate
  std::map<int, int> numbered_;    // of all changes that were asked for, likewise
  std::deque<run::Change> ready_;  // to be given to workers
  const std::size_t found_;        // candidates that were there when it began
  // The last decision on a plan, of which is yet to be seen what comes, and words since; and how
  // much of the file is there before them.
  std::vector<policy::Decision> kept_;
  std::uintmax_t settled_ = 0;
  std::map<std::int64_t, policy::StepSeen> seen_;  // what ranks said of steps that are not done
  std::vector<double> steps_;                      // of the plan that runs
  double spent_ = 0;                               // seconds of steps
  std::int64_t done_ = 0;                          // steps
  // Of an elastic job.
  std::optional<Membership> members_;
  std::vector<MembershipChange> membership_;
  MembershipChange coming_;          // since training went on last
  std::set<std::string> leaving_;    // devices, until they are left out
  std::set<std::string> arrived_;    // that no plan was made with yet
  std::set<int> told_;               // processes that were told of a change
  std::map<std::string, int> came_;  // the last change before a device came, of those that did
  std::string saved_path_;           // the latest checkpoint
  std::optional<Seconds> first_step_at_;
  std::vector<char> absences_begun_, absences_over_;
  std::optional<Error> fault_;
};

}  // namespace motley::control
