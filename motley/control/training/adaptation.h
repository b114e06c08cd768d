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

/// A plan that a training may continue with. All candidates give the result of one device with the
/// same batches. Programs are made on request and freed when another candidate runs.
struct Candidate {
  std::string label;                   ///< "the batch split 24:12:4"
  Planned planned;                     ///< without a program until one is made
  std::optional<Seconds> priced = {};  ///< step time, if the plan was found with prices
  std::vector<program::Program> evaluations = {};
  std::optional<Predicted> predicted = {};
  std::optional<Seconds> measured = {};  ///< median of its last steps in this run
  double lr_factor = 1;                  ///< on all learning rates, for its batch
};

struct BatchNow {            ///< stays when devices change
  std::int64_t samples = 0;  ///< per step
  double lr_factor = 1;
};

using Replan = std::function<Result<Candidate>(const std::vector<DeviceId>&, const BatchNow&)>;

/// The known state of a training that another host coordinated.
struct TakenOver {
  struct Plan {
    int number = 0;  ///< of the change that brings it
    plan::Plan plan;
    double lr_factor = 1;
  };
  std::vector<Plan> plans;          ///< oldest first; any of them may run
  std::vector<DeviceId> devices;    ///< by process
  std::vector<std::string> hosts;   ///< by process; this host's own name is reachable, too
  std::vector<std::string> living;  ///< those with a process when this was written
  int numbers = 0;                  ///< highest number that an order to halt may have used
  Seconds alone;                    ///< how long nobody has coordinated
  std::int64_t done = 0;            ///< steps, as far as its log goes
  std::int64_t saved_step = -1;     ///< of its last checkpoint, wherever it is
  Json policy = nullptr;            ///< state of the deciding policy; null: none
};

struct Grown {
  DeviceId device;
  run::WorkerDevice worker;
  std::string joined;  ///< describes its links
};

/// How a training may change while it runs.
struct Adaptation {
  std::deque<Candidate> candidates;
  int first = 0;
  /// Chooses plans; null: only the `given` decisions are carried out.
  std::unique_ptr<policy::Policy> policy = nullptr;
  /// Makes the policy for the candidates; null: none is needed.
  std::function<Result<std::unique_ptr<policy::Policy>>(const Adaptation&)> make_policy = nullptr;
  /// The decisions of another run, repeated at the same steps, and the candidate of each.
  std::vector<policy::Decision> given = {};
  std::vector<int> given_candidates = {};
  /// Makes a candidate for a policy's split; null: policies choose no splits.
  std::function<Result<Candidate>(const std::vector<policy::Share>&)> split = nullptr;
  /// Makes a candidate for a policy's batch; null: the batch stays.
  std::function<Result<Candidate>(const policy::UseBatch&)> batch = nullptr;
  /// Set where the batch changes; its learning-rate factor is the running candidate's.
  std::optional<run::Batches> batches = {};
  std::int64_t least_batch = 1;  ///< fewest samples per step where the batch changes
  /// Programs compute square norms of gradients (synth/noise/gradient_squares.h), unless on one
  /// device in one micro-batch.
  bool counts_squares = false;
  std::int64_t counts_every = 1;     ///< every this many steps, at first
  std::vector<DeviceId> spare = {};  ///< devices beside the candidates' that a split may use
  /// Makes a plan for the present devices and the current batch (replanning.h), so that training
  /// continues when devices are lost, join or leave. Null: losing any device ends it.
  Replan replan = nullptr;
  int survive = 0;  ///< losses at once that every plan must survive
  /// Prepares plans for losses (ready_plans.h). Nobody else then calls what `replan` calls.
  bool plans_ahead = false;
  std::vector<std::string> absent = {};  ///< devices that are not there at first
  /// `grow` adds a device to the cluster (joiner.h, growth.h); a device added so may be described
  /// anew until it joins. `price` prices it once it has joined and returns an explanation. Null:
  /// the cluster stays. Nobody else reads cluster or prices meanwhile.
  std::function<Result<Grown>(const cluster::Cluster& joiner)> grow = nullptr;
  std::function<std::string(DeviceId)> price = nullptr;
  std::vector<std::string> joiners = {};  ///< texts of all that joined, also in earlier calls
  int port = 0;                           ///< of the control socket; 0: any
  std::string version = "";
  /// See simulate/conditions.h.
  std::vector<simulate::Absence> absences = {};
  /// Prices for candidates' predictions once they have programs; null: no predictions.
  std::shared_ptr<const search::Costs> costs = nullptr;
  /// Gives a later candidate its evaluation programs; null: it does not evaluate.
  std::function<Result<void>(Candidate&)> complete = nullptr;

  /// The constant part of the state on standby hosts (takeover.h); null: no standbys.
  Json standby_state = nullptr;
  /// The state of the training that this host takes over; none: it starts here.
  std::optional<TakenOver> taken_over = {};
  /// Fetches that training's last checkpoint, as `Workers::bring_left_checkpoint` does.
  std::function<Result<std::string>()> bring_checkpoint = nullptr;

  /// The candidates' devices, the first candidate's before others, then the spare ones; after a
  /// takeover in the former coordinator's order.
  std::vector<DeviceId> devices() const;
};

Result<void> lower_candidate(const Inputs& inputs, const Adaptation& adaptation,
                             Candidate& candidate);

/// Predicts a candidate with a program, unless there are no prices or a time is unknown.
void predict_candidate(const Inputs& inputs, const Adaptation& adaptation, Candidate& candidate);

/// Samples of each device in a plan that splits the batch.
std::vector<policy::Share> shares_of(const plan::Plan& plan, const cluster::Cluster& cluster);

/// Of a policy's state in a checkpoint.
inline constexpr const char* kPolicySchema = "motley.policy/1";

}  // namespace motley::control
