#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/json.h"
#include "motley/control/planning/planning.h"
#include "motley/control/planning/prediction.h"
#include "motley/policy/decision.h"
#include "motley/policy/policy.h"
#include "motley/run/job.h"
#include "motley/simulate/conditions.h"

namespace motley::control {

/// A plan that a training may go on by, with the same result as the others, which is that of one
/// device with the same batches. Its programs are made when it is asked for, and let go when
/// another one runs.
struct Candidate {
  std::string label;                   ///< "the batch split 24:12:4"
  Planned planned;                     ///< without a program: not made yet
  std::optional<Seconds> priced = {};  ///< a step, where the plan was found
  std::vector<program::Program> evaluations = {};
  std::optional<Predicted> predicted = {};
  std::optional<Seconds> measured = {};  ///< median of its last steps in this run
  double lr_factor = 1;                  ///< of all learning rates, for its batch
};

struct BatchNow {            ///< that stays when devices change
  std::int64_t samples = 0;  ///< a step
  double lr_factor = 1;
};

/// A plan for the devices that are there.
using Replan = std::function<Result<Candidate>(const std::vector<DeviceId>&, const BatchNow&)>;

/// What is known of a training that another host led.
struct TakenOver {
  struct Plan {
    int number = 0;  ///< of the change that brought it, or was to bring it
    plan::Plan plan;
    double lr_factor = 1;
  };
  std::vector<Plan> plans;          ///< one of which runs, or more in turn; the oldest first
  std::vector<DeviceId> devices;    ///< by process
  std::vector<std::string> hosts;   ///< by process: this one's, too, is one that is reached
  std::vector<std::string> living;  ///< that had a process when this was written
  int numbers = 0;                  ///< of orders to halt: all until then may have been used
  Seconds alone;                    ///< since when nobody leads
  std::int64_t done = 0;            ///< steps, as far as its log has come
  std::int64_t saved_step = -1;     ///< of its last checkpoint, wherever that is
  Json policy = nullptr;            ///< state of the one that decided; null: none did
};

/// A device that the cluster of a training was given while it runs.
struct Grown {
  DeviceId device;
  run::WorkerDevice worker;
  std::string joined;  ///< words on its links
};

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
  /// The same of another batch; null: the batch stays.
  std::function<Result<Candidate>(const policy::UseBatch&)> batch = nullptr;
  /// Where the batch changes; the learning rate's factor is that of the candidate that runs.
  std::optional<run::Batches> batches = {};
  std::int64_t least_batch = 1;  ///< samples that a step has at least, where the batch changes
  /// Programs count them (synth/noise/gradient_squares.h), but one device's in one micro-batch.
  bool counts_squares = false;
  std::int64_t counts_every = 1;     ///< in every so-many-th step, at the beginning
  std::vector<DeviceId> spare = {};  ///< that a split may take, beside those of candidates
  /// The training goes on when devices are lost, come or leave: makes a plan for those that are
  /// there, of the batch that it has (replanning.h). Null: it ends with any of them.
  Replan replan = nullptr;
  int survive = 0;  ///< so many may be lost at once; no plan is begun that does not outlive that
  /// Plans for each loss are made beside training (ready_plans.h): nobody else then calls what
  /// `replan` does.
  bool plans_ahead = false;
  std::vector<std::string> absent = {};  ///< devices that are not there at the beginning
  /// Gives the cluster a device that it has not (joiner.h); one that was given so and has not
  /// come may be described anew. Prices it once it has come; words on how. Null: the cluster stays
  /// (growth.h). Nobody else reads cluster or prices meanwhile.
  std::function<Result<Grown>(const cluster::Cluster& joiner)> grow = nullptr;
  std::function<std::string(DeviceId)> price = nullptr;
  std::vector<std::string> joiners = {};  ///< texts of those that came, of earlier calls, too
  int port = 0;                           ///< where joining devices and others ask; 0: any
  std::string version = "";               ///< of the program that runs
  /// Devices that go and come back: as of an emulated cluster (simulate/conditions.h).
  std::vector<simulate::Absence> absences = {};
  /// By which a candidate is predicted once it has a program; null: none is.
  std::shared_ptr<const search::Costs> costs = nullptr;
  /// Gives one that is made later the programs by which it evaluates; null: it does not.
  std::function<Result<void>(Candidate&)> complete = nullptr;

  /// Of what is left with other hosts, so that one of them can lead on, that stays as it is
  /// (takeover.h); null: nothing is.
  Json standby_state = nullptr;
  /// The training was led by another host, which is gone. None: it begins here.
  std::optional<TakenOver> taken_over = {};
  /// Brings that one's last checkpoint here, as `Workers::bring_left_checkpoint` does.
  std::function<Result<std::string>()> bring_checkpoint = nullptr;

  /// Of the candidates, those of the one that runs first before others, and the spare ones.
  /// Of a training that was led elsewhere, as they were there.
  std::vector<DeviceId> devices() const;
};

/// Gives the candidate its program.
Result<void> lower_candidate(const Inputs& inputs, const Adaptation& adaptation,
                             Candidate& candidate);

/// What is said of a candidate that has its program; without prices, or where not all times are
/// known, there is nothing to compare its steps with.
void predict_candidate(const Inputs& inputs, const Adaptation& adaptation, Candidate& candidate);

/// Samples of each device of a plan that splits the batch.
std::vector<policy::Share> shares_of(const plan::Plan& plan, const cluster::Cluster& cluster);

/// Of what a checkpoint has of the policy that decided until then.
inline constexpr const char* kPolicySchema = "motley.policy/1";

}  // namespace motley::control
