#pragma once

#include <functional>

#include "motley/control/planning/planning.h"

namespace motley::control {

/// Runs one planner with the given prices and choices. `copies`: as in plan::Problem.
using SearchBy = std::function<Result<plan::PlanOutcome>(const search::PlannerInputs& known,
                                                         const PlanChoices& choices, int copies)>;

/// Finds the plan of a training that must survive the loss of any `inputs.survive` devices, of
/// which there are more than that. Planners compare plans without mirrors (mirroring.h) and commits
/// (synth/state/commit.h), so the final choice among the plans that they priced is made here.
///
/// Lowers plans with mirrors and commits and simulates them, in the order of their steps without.
/// Mirrors and commits never shorten a step, so the search ends once a plan's step without them
/// exceeds the best step found. At most kFinalists of each family (portfolio.h) are tried. The best
/// plan is the fastest one that survives the losses and fits with its mirrors. A planner with a
/// single plan (equal, given, ...) keeps it if it survives. If none survives, the best split of the
/// batch is taken, or one over all devices; if these do not survive either, the original plan stays
/// and `why` says so.
///
/// The outcome's step, memory and equal split include mirrors and commits. Its bound is for
/// plans without them, and holds here, too. Errors: those of the search and of lowering.
Result<plan::PlanOutcome> find_survivor(const Inputs& inputs, const PlanChoices& choices,
                                        const Priced& priced, const SearchBy& search);
inline constexpr int kFinalists = 6;

/// Are there more devices than the losses to survive?
bool must_survive(const Inputs& inputs);

/// Prices a plan with its mirrors and commits. Errors with code cost.*: unknown times.
Result<plan::Price> price_to_run(const Inputs& inputs, const Priced& priced,
                                 const Planned& planned);

}  // namespace motley::control
