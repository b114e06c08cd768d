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

namespace motley::control {

/// How to look for a plan.
struct PlanChoices {
  PriceChoices prices;
  std::string planner = "auto";  ///< of `planners`
  std::span<const search::NamedPlanner> planners = search::planners();
  std::vector<std::int64_t> manual;  ///< samples of each allowed device; not empty: that split
  std::vector<plan::GivenReplica> stages;  ///< not empty: these
  std::int64_t micro_batches = 0;          ///< that a step must have; 0: as few as memory allows
  /// Up to which a planner may take larger buckets than the question's; 0: just these.
  Bytes most_bucket_bytes{0};
  std::uint64_t seed = 0;  ///< of planner "random"
  std::optional<Seconds> time_limit;
};

/// A plan with what it is lowered to. Simulating, running and measuring take it from here.
struct Planned {
  plan::Plan plan;
  std::shared_ptr<const program::Program> program;
};

/// What planning came to. That nothing fits is an answer: then there is no plan, and the outcome
/// says why.
struct Answer {
  plan::PlanOutcome outcome;
  std::optional<Planned> planned;  ///< of the outcome, if parts of its operators could be measured
  Priced priced;
  double elapsed_s = 0;  ///< of the search, over all rounds
};

/// Prices the inputs and finds a plan. Where missing times are to be measured and the
/// plan splits operators, their parts are measured as it splits them, and with what that taught it
/// is planned again, at most kPlanningRounds times. Where nothing fits with what is to be left free
/// (leave_spare), a plan that may not fit is searched for in all of the memory. The time limit
/// counts over all rounds. Errors: those of prices and planners; several devices for a model that
/// only one can run (synth::check_devices).
Result<Answer> find_plan(Inputs& inputs, const PlanChoices& choices, const Outside& outside);
inline constexpr int kPlanningRounds = 4;

/// What planners are asked.
plan::Problem make_problem(const Inputs& inputs, const PlanChoices& choices);

/// A plan for the inputs, whose devices are some of those that the prices are for. Nothing is
/// measured.
Result<plan::PlanOutcome> plan_again(Inputs inputs, const PlanChoices& choices,
                                     const Priced& priced);

/// Lowers a verified plan of the inputs.
Result<Planned> lower_plan(const Inputs& inputs, plan::Plan plan);

/// Reads a plan file for the inputs, which follow it (inputs.h), and lowers it. Stale where it is
/// not of this model and cluster, infeasible where a device has not the memory for it, with
/// arithmetic; a usage error where the inputs have a recipe of their own that is not the plan's.
Result<Planned> read_plan(const std::string& path, Inputs& inputs);

/// Every device holds its program within its memory; else infeasible, with arithmetic.
Result<void> check_memory(const Inputs& inputs, const Planned& planned);

/// Tells the listener the phases `search` and `synth`; the plan is lowered if it asks for its
/// program.
Result<void> show_plan(const Inputs& inputs, const plan::Plan& plan, Listener& listener);

/// An outcome without a plan, as an error (infeasible) with its arithmetic.
Error infeasible_error(const plan::PlanOutcome& outcome);

/// "the batch split 20:14:6", "operators split over 3 devices", "2 stages", "a:0 alone".
std::string describe_plan(const plan::Plan& plan, const cluster::Cluster& cluster);

}  // namespace motley::control
