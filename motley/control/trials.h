#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "motley/control/adapting.h"
#include "motley/control/chosen_plan.h"

namespace motley::control {

/// The chosen plan and its alternatives, with what is predicted of them, to be tried in turn
/// (policy/plan_trials.h). None: there is no other plan. The first is the chosen one.
Result<std::shared_ptr<Adaptation>> find_trials(const ChosenPlan& chosen,
                                                const std::optional<Predicted>& predicted);

/// Leaves as many candidates as so many steps are worth, and gives those that are left their
/// policy. False: only one is left, and nothing is given.
bool limit_trials(std::int64_t steps, Adaptation& adaptation);

/// Goes on as the run directory's latest checkpoint says, where a policy has decided in it: its
/// candidates and state take the place of these. Stale where its plans are of another model.
Result<void> resume_trials(const RunDirectory& directory, const ChosenPlan& chosen,
                           Listener& listener, Adaptation& adaptation);

/// The plans and changes of another run's decisions; the first of its plans runs first.
/// Usage error `decisions.none`: the file has none.
Result<std::shared_ptr<Adaptation>> repeat_decisions(const std::string& path, const Inputs& inputs);

}  // namespace motley::control
