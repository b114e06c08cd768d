#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "motley/control/listener.h"
#include "motley/control/planning/chosen_plan.h"
#include "motley/control/run_directory.h"
#include "motley/control/training/adaptation.h"

namespace motley::control {

/// Returns the chosen plan and its alternatives with predictions, to be tried in turn
/// (policy/plan_trials.h). None: there is no other plan.
Result<std::shared_ptr<Adaptation>> find_trials(const ChosenPlan& chosen,
                                                const std::optional<Predicted>& predicted);

/// Keeps the number of candidates worth trying in `steps` steps. False: only one is left.
Result<bool> limit_trials(std::int64_t steps, Adaptation& adaptation);

/// Restores candidates and policy from the latest checkpoint, if it has any. Starts anew, with a
/// note, if they are of another question or policy.
Result<void> resume_adaptation(const RunDirectory& directory, const ChosenPlan& chosen,
                               Listener& listener, Adaptation& adaptation);

/// Repeats another run's decisions, beginning with their plan `first`. Usage error
/// `decisions.none`: the file has none.
Result<std::shared_ptr<Adaptation>> repeat_decisions(const std::string& path, const Inputs& inputs,
                                                     const Planned& first);

/// Continues a repetition from the latest checkpoint, with its plan and later decisions.
Result<void> resume_decisions(const RunDirectory& directory, const Inputs& inputs,
                              Adaptation& adaptation);

}  // namespace motley::control
