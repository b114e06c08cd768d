#pragma once

#include <functional>

#include "motley/control/planning/planning.h"

namespace motley::control {

/// One search by some prices and choices: make_planner and its plan. `copies`: the problem's.
using SearchBy = std::function<Result<plan::PlanOutcome>(const search::PlannerInputs& known,
                                                         const PlanChoices& choices, int copies)>;

/// The search of a training of which any `inputs.survive` devices may be lost at once, where there
/// are more devices than that: planners compare plans without mirrors (mirroring.h) and commits
/// (synth/state/commit.h), so that the last choice among what they priced is made here.
///
/// Plans are lowered as they will run, with both, and simulated, in the order of their steps
/// without: as these are never longer, none of the rest can be better once one takes longer than
/// the best that was found. Of each family (portfolio.h) no more than kFinalists are. The best is
/// the one of the least step that outlives the losses and fits, mirrors included. Planners that
/// have but one plan (equal, given, ...) keep it where it outlives them.
/// Where none does: the best split of the batch, or one of which all devices have a part; where
/// these do not either, the plan that was found, and `why` says so.
///
/// The outcome's step, memory and equal split are those of such programs; its bound is that of
/// plans without, which holds for these, too. Faults: those of the search, and of lowering.
Result<plan::PlanOutcome> find_survivor(const Inputs& inputs, const PlanChoices& choices,
                                        const Priced& priced, const SearchBy& search);
inline constexpr int kFinalists = 6;

/// Are there so many devices that some are left when as many are lost as are to be outlived?
bool must_survive(const Inputs& inputs);

/// What a plan takes and needs as it will run: with mirrors and commits where the inputs have them.
/// Errors with code cost.*: times that nobody knows.
Result<plan::Price> price_to_run(const Inputs& inputs, const Priced& priced,
                                 const Planned& planned);

}  // namespace motley::control
