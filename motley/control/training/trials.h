#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "motley/control/listener.h"
#include "motley/control/planning/chosen_plan.h"
#include "motley/control/run_directory.h"
#include "motley/control/training/adaptation.h"

namespace motley::control {

/// Returns the chosen plan, first, and its alternatives with their predictions, to be tried one
/// after the other (policy/plan_trials.h). None: there is no other plan.
Result<std::shared_ptr<Adaptation>> find_trials(const ChosenPlan& chosen,
                                                const std::optional<Predicted>& predicted);

/// Limits the candidates to the number worth trying in `steps` steps. False: only one is left, so
/// there is nothing to decide.
Result<bool> limit_trials(std::int64_t steps, Adaptation& adaptation);

/// Restores candidates and policy state from the run directory's latest checkpoint, if it has any.
/// If they are of another question or policy, starts anew and notes that.
Result<void> resume_adaptation(const RunDirectory& directory, const ChosenPlan& chosen,
                               Listener& listener, Adaptation& adaptation);

/// Makes an adaptation that repeats another run's decisions. `first`, the plan of the first
/// decision, runs first. Usage error `decisions.none`: the file has none.
Result<std::shared_ptr<Adaptation>> repeat_decisions(const std::string& path, const Inputs& inputs,
                                                     const Planned& first);

/// Moves a repetition to the latest checkpoint's step, if there is one: keeps the plan that runs
/// there and the decisions after it.
Result<void> resume_decisions(const RunDirectory& directory, const Inputs& inputs,
                              Adaptation& adaptation);

}  // namespace motley::control
