#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "motley/cli/context.h"
#include "motley/cli/verbs.h"
#include "motley/cluster/cluster.h"
#include "motley/cost/measured/profile_store.h"
#include "motley/graph/model_file.h"
#include "motley/plan/planner.h"
#include "motley/search/split/step_evaluator.h"
#include "motley/synth/lower.h"

namespace motley::cli {

/// Model, cluster and choices of one planning, read and checked.
struct Inputs {
  std::string model_path;
  graph::Model model;
  cluster::Cluster cluster;
  std::vector<DeviceId> devices;  ///< the cluster's devices less the excluded ones
  synth::LowerOptions lowering;
  std::int64_t global_batch = 0;
};
Result<Inputs> read_inputs(const PlanningOptions& options, const Context& context);
Result<plan::Optimizer> parse_optimizer(const PlanningOptions& options);

/// Where the profile store lies.
std::string profile_path(const PlanningOptions& options, const Context& context);

/// Measured times for the inputs; what is missing is measured first unless --profile never.
Result<std::shared_ptr<const search::Costs>> find_costs(const Inputs& inputs,
                                                        const PlanningOptions& options,
                                                        const Context& context);

/// Measures every operator on every device kind and the exchanges of the group, into the store.
struct MeasureSummary {
  std::int64_t entries = 0;
  double spread = 0;  ///< median over the entries
};
Result<MeasureSummary> measure(const Inputs& inputs, cost::ProfileStore& store,
                               const Context& context);

/// Measures the operators of a sharded plan, as it splits them, on those of its devices that are
/// here, into the store at `path`. False: all were measured before.
Result<bool> measure_plan(const Inputs& inputs, const plan::Plan& plan, const std::string& path,
                          const Context& context);

/// Puts what a run measured into the store as one more round: of each operator, or of whole steps
/// of emulated devices. The run is of the inputs' model and cluster (else stale, exit 4).
Result<MeasureSummary> correct_from_run(const std::string& run_dir, const std::string& torch,
                                        const Inputs& inputs, cost::ProfileStore& store);

/// The whole way from options to an answer. An infeasible outcome is a value.
struct Planned {
  Inputs inputs;
  std::shared_ptr<const search::Costs> costs;
  plan::PlanOutcome outcome;
  double elapsed_s = 0;
};
Result<Planned> make_plan(const PlanningOptions& options, const Context& context);

/// The phases `search` and `synth` of a plan: the plan and its program.
Result<void> show_plan(const Inputs& inputs, const plan::Plan& plan, const Context& context);

/// Splits "24,12,4"; commas only.
Result<std::vector<std::int64_t>> parse_batch_split(const std::string& text);

/// Keys of interfaces.md.
Json outcome_to_json(const Planned& planned);

/// The infeasible outcome as an error (exit 3) with its arithmetic.
Error infeasible_error(const plan::PlanOutcome& outcome);
/// The same as a verb's answer: with --json the object is the result, and only the exit code tells.
Result<int> report_infeasible(const plan::PlanOutcome& outcome, const Json& object,
                              const Context& context);

}  // namespace motley::cli
