#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "motley/control/listener.h"
#include "motley/control/planning/chosen_plan.h"
#include "motley/control/run_directory.h"
#include "motley/control/training/adaptation.h"

namespace motley::control {

/// The chosen plan and its alternatives, with what is predicted of them, to be tried in turn
/// (policy/plan_trials.h). None: there is no other plan. The first is the chosen one.
Result<std::shared_ptr<Adaptation>> find_trials(const ChosenPlan& chosen,
                                                const std::optional<Predicted>& predicted);

/// Leaves as many candidates to be tried as so many steps are worth. False: only one is left, and
/// there is nothing to decide.
Result<bool> limit_trials(std::int64_t steps, Adaptation& adaptation);

/// Goes on as the run directory's latest checkpoint says, where a policy has decided in it: its
/// candidates and its state take the place of these. Where they are not of this question, or of
/// another policy, it is begun anew, with a note.
Result<void> resume_adaptation(const RunDirectory& directory, const ChosenPlan& chosen,
                               Listener& listener, Adaptation& adaptation);

/// The plans and changes of another run's decisions. `first`, the plan that they begin by, runs
/// first. Usage error `decisions.none`: the file has none.
Result<std::shared_ptr<Adaptation>> repeat_decisions(const std::string& path, const Inputs& inputs,
                                                     const Planned& first);

/// Begins where the run directory's latest checkpoint stands, if there is one: by the plan that
/// such a repetition has come to there, with the decisions that are left.
Result<void> resume_decisions(const RunDirectory& directory, const Inputs& inputs,
                              Adaptation& adaptation);

}  // namespace motley::control
