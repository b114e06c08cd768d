#pragma once

#include <string>
#include <vector>

#include "motley/control/planning/chosen_plan.h"
#include "motley/control/training/adaptation.h"
#include "motley/control/training/training.h"

namespace motley::control {

/// Lets the cluster of a training grow while it runs (Adaptation::grow, price): what is chosen
/// changes with it, and with both the adaptation. All must outlive it. A joining device has the
/// times of its own profile, where `profiles` has one, else those of the most similar device that
/// is priced, by their speeds; where exchanges over its links were never measured nothing is priced
/// from then on. If it is not alike to the others parameters are updated by portable operators from
/// then on.
void let_grow(ChosenPlan& chosen, const std::string& profiles, Enforce enforce,
              const Workers& workers, Adaptation& adaptation);

/// Devices that came to a run which is gone on with, by their texts: of what is chosen they are as
/// if they came now. Where the cluster has a node of that name it is that one.
Result<void> take_earlier(ChosenPlan& chosen, const std::vector<std::string>& joiners,
                          const std::string& profiles, Enforce enforce, const Outside& outside);

}  // namespace motley::control
