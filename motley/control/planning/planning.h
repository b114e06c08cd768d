#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "motley/control/planning/pricing.h"
#include "motley/plan/planner.h"
#include "motley/program/program.h"
#include "motley/search/planners.h"
#include "motley/search/synchronised.h"

namespace motley::control {

struct PlanChoices {
  PriceChoices prices;
  std::string planner = "auto";  ///< one of `planners`
  std::span<const search::NamedPlanner> planners = search::planners();
  std::vector<std::int64_t> manual;        ///< samples per device; not empty: use this split
  std::vector<plan::GivenReplica> stages;  ///< not empty: use these
  std::int64_t micro_batches = 0;          ///< required number; 0: as few as memory allows
  search::Sync sync;
  std::optional<plan::Carried> carried;  ///< exchanges into the next step; none: as is faster
  /// Limit for buckets larger than the question's; 0: only the question's.
  Bytes most_bucket_bytes{0};
  std::uint64_t seed = 0;  ///< for the planner "random"
  std::optional<Seconds> time_limit;
};

/// A plan and its program, the input of simulating, running and measuring.
struct Planned {
  plan::Plan plan;
  std::shared_ptr<const program::Program> program;
};

/// The result of planning. Without a plan, the outcome explains why nothing fits.
struct Answer {
  plan::PlanOutcome outcome;
  /// Of the outcome, unless parts of its operators could not be measured.
  std::optional<Planned> planned;
  Priced priced;
  double elapsed_s = 0;  ///< of the search, over all rounds
};

/// Prices the inputs and finds a plan. If missing times are to be measured and the plan splits
/// operators, measures their parts and plans again, at most kPlanningRounds times. If nothing fits
/// beside the memory to be left free (leave_spare), searches in all memory, and the plan may not
/// fit. The time limit covers all rounds. Errors: those of prices and planners; several devices for
/// a model that only one can run (synth::check_devices).
Result<Answer> find_plan(Inputs& inputs, const PlanChoices& choices, const Outside& outside);
inline constexpr int kPlanningRounds = 4;

plan::Problem make_problem(const Inputs& inputs, const PlanChoices& choices);

/// Plans for inputs with a subset of the priced devices. Measures nothing. Plans that cannot sum
/// gradients as asked (search.sync: one replica, no server) sum them as the planner chooses.
Result<plan::PlanOutcome> plan_again(Inputs inputs, const PlanChoices& choices,
                                     const Priced& priced);

Result<Planned> lower_plan(const Inputs& inputs, plan::Plan plan);

/// Reads and lowers a plan file, which the inputs then follow (inputs.h). Stale: another model or
/// cluster. Infeasible: too little memory. Usage error: the inputs have another recipe.
Result<Planned> read_plan(const std::string& path, Inputs& inputs);

/// Infeasible, with arithmetic: a device lacks the memory for its program.
Result<void> check_memory(const Inputs& inputs, const Planned& planned);

/// Passes the phases `search` and `synth` on; lowers the plan only if `synth` is printed.
Result<void> show_plan(const Inputs& inputs, const plan::Plan& plan, Listener& listener);

Error infeasible_error(const plan::PlanOutcome& outcome);

/// "the batch split 20:14:6", "operators split over 3 devices", "2 stages", "a:0 alone".
std::string describe_plan(const plan::Plan& plan, const cluster::Cluster& cluster);

}  // namespace motley::control
