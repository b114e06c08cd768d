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

/// The predicted cost of a plan.
struct Price {
  Seconds step;              ///< one step, simulated
  std::vector<Bytes> peaks;  ///< memory of each member (plan.h), including what PyTorch holds
  Seconds rounding;          ///< part of `step` that rounding to whole nanoseconds may add
};

/// Prices plans: the measure by which planners compare them. Implemented over cost tables and the
/// simulator; tests use small tables. Deterministic; depends on the plan's program only.
class Evaluator {
 public:
  virtual ~Evaluator() = default;
  /// Errors: the plan cannot be lowered (synth.*, plan.*); times are unknown (cost.*).
  virtual Result<Price> price(const Plan& plan) const = 0;
};

/// A plan that an earlier planning found, and its explanation.
struct KnownPlan {
  Plan plan;
  std::vector<std::string> why;
};

/// The question. The cluster is not owned and must outlive the call.
struct Problem {
  const cluster::Cluster* cluster = nullptr;
  std::string model_hash;
  std::int64_t global_batch = 0;
  /// The model's limits of a local batch.
  std::int64_t min_samples = 1, max_samples = 4096;
  Recipe recipe;
  BatchNormMode batch_norm = BatchNormMode::kGlobal;
  BatchNormSpan batch_norm_span = BatchNormSpan::kStep;
  Bytes bucket_bytes{4 << 20};
  /// Planners of shardings may use larger buckets, up to this size, if they are faster.
  Bytes most_bucket_bytes{0};
  Updates updates = Updates::kNative;
  std::vector<DeviceId> devices;     ///< allowed devices, in cluster order
  std::vector<std::int64_t> manual;  ///< planner "manual": samples of devices[i]
  std::vector<GivenReplica> stages;  ///< planner "given": the plan
  /// Plans of an earlier planning that knew fewer costs; planner "auto" returns no worse plan.
  std::vector<KnownPlan> known;
  std::uint64_t seed = 0;
  /// How many other devices shall mirror what only one device has. Planners of shardings choose
  /// with a rough price of these copies; the price of a plan excludes them.
  int copies = 0;
  /// A search stops at this limit with its best plan (reason `limit`), which depends on the
  /// machine.
  std::optional<Seconds> time_limit;
};

/// Why a planner returned its answer: proved optimal; nothing better found; nothing fits; the time
/// limit ended the search (a plan, if there is one, is the best until then).
enum class Reason { kOptimal, kFeasible, kInfeasible, kLimit };
std::string_view reason_name(Reason reason);

/// A simple alternative shown with the answer.
struct Baseline {
  bool fits = false;
  Seconds step;       ///< valid also when it does not fit
  std::string label;  ///< "32:32:32", "a:0"
};

/// The description of another good plan: "2 replicas of 3 and 1 stages".
struct RunnerUp {
  std::string label;
  Seconds step;
};

/// Another plan that fits, in full, to try in a run that measures steps.
struct Alternative {
  Plan plan;
  Seconds step;                          ///< priced like the answer
  std::optional<Seconds> measured = {};  ///< in an earlier run
};

/// The answer. `optimal`: no plan that the planner searches (splits of the batch, with operators
/// split or not) has a smaller predicted step. `lower_bound` holds for all of them and never
/// exceeds a known `predicted_step`.
struct PlanOutcome {
  Reason reason = Reason::kInfeasible;
  std::optional<Plan> plan;  ///< absent when infeasible; optional when limit
  std::string planner;
  Seconds predicted_step;                     ///< 0: times of the plan's instructions are unknown
  Seconds rounding;                           ///< of predicted_step
  std::optional<Seconds> measured_step = {};  ///< in an earlier run
  Seconds lower_bound;
  std::vector<std::pair<DeviceId, Bytes>> peak;  ///< per used device
  /// No plan leaves the wanted memory free (cluster::Device::spare).
  bool may_not_fit = false;
  std::vector<DeviceId> idle;
  Baseline equal_split, best_single;
  std::int64_t considered = 0;  ///< plans priced
  /// By replica and region of a plan with stages: its layers, "emb to h.3"; empty: unknown.
  std::vector<std::vector<std::string>> stage_names = {};
  std::vector<RunnerUp> runner_ups = {};       ///< of other pipeline configurations, best first
  std::vector<Alternative> alternatives = {};  ///< best first; of planner "auto"
  std::vector<std::string> why;  ///< sentences for people; when infeasible, the arithmetic
};

/// Returns a plan with the problem's settings and no replicas.
Plan blank_plan(const Problem& problem);

/// Returns the problem's devices that are not in `used`, in its order.
std::vector<DeviceId> idle_devices(const Problem& problem, const std::vector<DeviceId>& used);

/// Finds a plan. All planners share one contract and one test suite (search/planners_test.cc):
/// deterministic for equal problems and seeds without a time limit, every returned plan passes
/// verify_plan and fits in memory, and an infeasible answer comes with its arithmetic.
class Planner {
 public:
  virtual ~Planner() = default;
  virtual std::string_view name() const = 0;
  virtual Result<PlanOutcome> plan(const Problem& problem) const = 0;
};

}  // namespace motley::plan
