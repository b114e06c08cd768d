#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/units.h"
#include "motley/plan/given_stages.h"
#include "motley/plan/plan.h"

namespace motley::plan {

/// What a plan is expected to take and to need.
struct Price {
  Seconds step;              ///< one step, simulated
  std::vector<Bytes> peaks;  ///< memory of each member (plan.h), what PyTorch holds included
  Seconds rounding;          ///< of `step`: what its whole nanoseconds may add up to
};

/// Prices plans: the one measure by which planners compare them. Implemented over cost tables and
/// the simulator; tests use small tables. Const and deterministic; the price depends on the plan's
/// program alone, not on the planner that found it.
class Evaluator {
 public:
  virtual ~Evaluator() = default;
  /// Errors: a plan that cannot be lowered (synth.*, plan.*); times that nobody knows (cost.*).
  virtual Result<Price> price(const Plan& plan) const = 0;
};

/// What an earlier planning found, and said of it.
struct KnownPlan {
  Plan plan;
  std::vector<std::string> why;
};

/// The question. The cluster is not owned and must outlive the call.
struct Problem {
  const cluster::Cluster* cluster = nullptr;
  std::string model_hash;
  std::int64_t global_batch = 0;
  /// Limits of the model: local batches outside are not allowed.
  std::int64_t min_samples = 1, max_samples = 4096;
  Recipe recipe;
  BatchNormMode batch_norm = BatchNormMode::kGlobal;
  BatchNormSpan batch_norm_span = BatchNormSpan::kStep;
  Bytes bucket_bytes{4 << 20};
  /// Planners of shardings may take larger buckets, up to this, where these are quicker.
  Bytes most_bucket_bytes{0};
  Updates updates = Updates::kNative;
  std::vector<DeviceId> devices;     ///< allowed devices, in cluster order
  std::vector<std::int64_t> manual;  ///< planner "manual": samples of devices[i]
  std::vector<GivenReplica> stages;  ///< planner "given": the plan
  /// Plans of an earlier planning, when less was known of what they take: the planner "auto" prices
  /// them again, and gives none that is worse.
  std::vector<KnownPlan> known;
  std::uint64_t seed = 0;
  /// So many others are to have copies of what a device alone has: planners of shardings choose
  /// ways by a rough price of that, too. Plans are priced without.
  int copies = 0;
  /// After it a search gives what it has: outcome `limit`. What it gives then depends on how fast
  /// the machine is.
  std::optional<Seconds> time_limit;
};

/// Why a planner gave what it gave: nothing is better; nothing better was found; nothing fits; the
/// time limit ended the search (the plan, if there is one, is the best until then).
enum class Reason { kOptimal, kFeasible, kInfeasible, kLimit };
std::string_view reason_name(Reason reason);

/// A simple alternative shown beside the answer.
struct Baseline {
  bool fits = false;
  Seconds step;       ///< valid also when it does not fit
  std::string label;  ///< "32:32:32", "a:0"
};

/// A plan that came next to the answer, in words: "2 replicas of 3 and 1 stages".
struct RunnerUp {
  std::string label;
  Seconds step;
};

/// A plan beside the answer that fits, whole: what is tried where steps are measured.
struct Alternative {
  Plan plan;
  Seconds step;                          ///< priced as the answer is
  std::optional<Seconds> measured = {};  ///< in an earlier run
};

/// The answer. `optimal` claims that no plan of those that the planner searches has a smaller
/// predicted step: splits of the batch, with operators split or not. `lower_bound` holds for every
/// one of them, and is never above `predicted_step` if that is known.
struct PlanOutcome {
  Reason reason = Reason::kInfeasible;
  std::optional<Plan> plan;  ///< absent when infeasible; when limit, it may be
  std::string planner;
  Seconds predicted_step;  ///< 0: the times of the plan's instructions are not known
  Seconds rounding;        ///< of predicted_step
  std::optional<Seconds> measured_step = {};  ///< in an earlier run
  Seconds lower_bound;
  std::vector<std::pair<DeviceId, Bytes>> peak;  ///< of used devices
  /// There is no plan that leaves free what is to be left (cluster::Device::spare).
  bool may_not_fit = false;
  std::vector<DeviceId> idle;
  Baseline equal_split, best_single;
  std::int64_t considered = 0;  ///< plans priced
  /// Of a plan with stages: by replica and region what it has, "emb to h.3"; empty: not known.
  std::vector<std::vector<std::string>> stage_names = {};
  std::vector<RunnerUp> runner_ups = {};       ///< of other shapes, best first
  std::vector<Alternative> alternatives = {};  ///< best first; of planner "auto"
  std::vector<std::string> why;  ///< sentences for people; when infeasible, the arithmetic
};

/// The problem's plan, but for who computes what: no replicas.
Plan blank_plan(const Problem& problem);

/// The problem's devices that are not used, in its order.
std::vector<DeviceId> idle_devices(const Problem& problem, const std::vector<DeviceId>& used);

/// Finds a plan. One contract, one test suite for all (search/planners_test.cc): deterministic for
/// equal problems and seeds without a time limit, verify_plan passes on every plan returned, memory
/// limits hold, infeasible only with arithmetic.
class Planner {
 public:
  virtual ~Planner() = default;
  virtual std::string_view name() const = 0;
  virtual Result<PlanOutcome> plan(const Problem& problem) const = 0;
};

}  // namespace motley::plan
