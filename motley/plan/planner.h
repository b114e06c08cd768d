#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "motley/base/units.h"
#include "motley/plan/plan.h"

namespace motley::plan {

/// A nondecreasing piecewise-linear function of the local batch: points (samples, seconds) with
/// samples strictly increasing. Below the first point it is constant; beyond the last it goes on
/// with the last segment's slope.
struct Curve {
  std::vector<std::pair<double, double>> points;
  bool operator==(const Curve&) const = default;
  double at(double samples) const;
};

/// Time of one step on one device as a function of its samples, computing undisturbed at its own
/// speed, from the start of the step:
///   ready[k]   exchange k (in order of exchange) may start
///   end        forward, backward and packing are done
///   update[k]  seconds of the optimizer update that follows exchange k (does not depend on
///   samples) barriers   seconds of exchanges in the middle of forward and backward that hold up
///   everybody
///              are not part of these; see DeviceGroup.
struct StepCurves {
  std::vector<Curve> ready;
  Curve end;
  std::vector<double> update;
  bool operator==(const StepCurves&) const = default;
};

/// What a group of devices spends on communication in a step.
struct GroupTimes {
  std::vector<double> exchange;  ///< seconds of exchange k
  double blocking = 0.0;  ///< seconds of exchanges that all devices wait for (batch norm, ...)
};

/// Prices what a planner considers. Implemented over cost tables and the simulator; tests use small
/// tables. All times in seconds. Const and deterministic.
class Evaluator {
 public:
  virtual ~Evaluator() = default;
  /// Curves of a device in a group of more than one (shared) or alone (not shared: no exchanges,
  /// ready and update empty, end includes the update).
  enum class Setting { kAlone, kShared };
  virtual const StepCurves& curves(DeviceId device, Setting setting) const = 0;
  virtual GroupTimes group_times(const std::vector<DeviceId>& group) const = 0;
  /// Peak memory of a device with `samples` samples.
  virtual Bytes peak_bytes(DeviceId device, std::int64_t samples, Setting setting) const = 0;
  /// Step time of a whole plan, by the simulator.
  virtual Result<Seconds> step_time(const Plan& plan) const = 0;
};

/// The question. Pointers are not owned and must outlive the call.
struct Problem {
  const cluster::Cluster* cluster = nullptr;
  const Evaluator* evaluator = nullptr;
  /// For plans that split operators; null: only splits of the batch are asked for.
  const graph::Graph* graph = nullptr;
  std::string model_hash;
  std::int64_t global_batch = 0;
  /// Limits of the model: local batches outside are not allowed.
  std::int64_t min_samples = 1, max_samples = 4096;
  Optimizer optimizer;
  BatchNormMode batch_norm = BatchNormMode::kGlobal;
  Bytes bucket_bytes{4 << 20};
  std::vector<DeviceId> devices;     ///< allowed devices, in cluster order
  std::vector<std::int64_t> manual;  ///< planner "manual": samples of devices[i]
  std::uint64_t seed = 0;
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

/// The answer. `optimal` claims that no plan of those that the planner searches has a smaller
/// predicted step: splits of the batch, with operators split or not. `lower_bound` holds for every
/// one of them, and is never above `predicted_step` if that is known.
struct PlanOutcome {
  Reason reason = Reason::kInfeasible;
  std::optional<Plan> plan;  ///< absent when infeasible; when limit, it may be
  std::string planner;
  Seconds predicted_step;  ///< 0: the times of the plan's instructions are not known
  Seconds lower_bound;
  std::vector<std::pair<DeviceId, Bytes>> peak;  ///< of used devices
  std::vector<DeviceId> idle;
  Baseline equal_split, best_single;
  std::int64_t considered = 0;   ///< plans priced
  std::vector<std::string> why;  ///< sentences for people; when infeasible, the arithmetic
};

/// Finds a plan. One contract, one test suite for all: deterministic for equal problems and seeds
/// without a time limit, verify_plan passes on every plan returned, memory limits hold, infeasible
/// only with arithmetic.
class Planner {
 public:
  virtual ~Planner() = default;
  virtual std::string_view name() const = 0;
  virtual Result<PlanOutcome> plan(const Problem& problem) const = 0;
};

}  // namespace motley::plan
