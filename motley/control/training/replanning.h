#pragma once

#include "motley/control/planning/chosen_plan.h"
#include "motley/control/training/adaptation.h"

namespace motley::control {

/// Plans of a training for the devices that are there. Where there are prices they are searched
/// for as the plan was (a plan that was given with samples or stages: as `auto`); without, a split
/// of the batch keeps the proportions of its shares, and devices that had none get as much as the
/// middle one of those. Infeasible errors with arithmetic. `chosen` outlives what is returned.
///
/// They outlive losses as the chosen one is to (survivors.h).
Replan make_replanner(const ChosenPlan& chosen, PlanChoices choices);

}  // namespace motley::control
