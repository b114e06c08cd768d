#pragma once

#include "motley/control/planning/chosen_plan.h"
#include "motley/control/training/adaptation.h"

namespace motley::control {

/// Returns plans for the present devices that survive the losses that the chosen plan must
/// (survivors.h). With prices it searches like the original planning, or with `auto` if samples or
/// stages were given; else it keeps the split's proportions, and devices without a share get the
/// median. Infeasible errors with arithmetic. `chosen` outlives the result.
Replan make_replanner(const ChosenPlan& chosen, PlanChoices choices);

}  // namespace motley::control
