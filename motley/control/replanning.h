#pragma once

#include "motley/control/adapting.h"
#include "motley/control/chosen_plan.h"

namespace motley::control {

/// Plans of a training for the devices that are there. Where there are prices they are searched
/// for as the plan was (a plan that was given with samples or stages: as `auto`); without, a split
/// of the batch keeps the proportions of its shares, and devices that had none get as much as the
/// middle one of those. Infeasible errors with arithmetic. `chosen` outlives what is returned.
///
/// `survive`: so many devices may be lost at once and those that are left have all that is kept, in
/// mirrors too (mirroring.h), where there are more devices than that. Of the plan that is found so
/// and one that splits the batch alone the quicker is taken, with what mirrors take; the latter
/// where the other does not outlive that.
Replan make_replanner(const ChosenPlan& chosen, PlanChoices choices, int survive = 0);

}  // namespace motley::control
