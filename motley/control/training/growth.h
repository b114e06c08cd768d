#pragma once

#include <string>
#include <vector>

#include "motley/control/planning/chosen_plan.h"
#include "motley/control/training/adaptation.h"
#include "motley/control/training/training.h"

namespace motley::control {

/// Lets the cluster grow during training (Adaptation::grow, price), and `chosen` and the adaptation
/// with it. All arguments must outlive the adaptation. A joining device gets the times of its own
/// profile in `profiles`, else those of the most similar priced device, scaled by speed. If
/// exchanges over its links were never measured, nothing is priced from then on. If it differs in
/// kind from the others, parameters are updated by portable operators from then on.
void let_grow(ChosenPlan& chosen, const std::string& profiles, Enforce enforce,
              const Workers& workers, Adaptation& adaptation);

/// Adds devices that joined an earlier call of the run, by their texts, to `chosen` as if they
/// joined now. A node of the same name in the cluster is that device.
Result<void> take_earlier(ChosenPlan& chosen, const std::vector<std::string>& joiners,
                          const std::string& profiles, Enforce enforce, const Outside& outside);

}  // namespace motley::control
