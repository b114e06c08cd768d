#pragma once

#include <string>
#include <vector>

#include "motley/control/planning/chosen_plan.h"
#include "motley/control/training/adaptation.h"
#include "motley/control/training/training.h"

namespace motley::control {

/// Lets the cluster, `chosen` and the adaptation grow during training (Adaptation::grow, price).
/// All arguments outlive the adaptation. A joining device gets the times of its profile in
/// `profiles`, else those of the most similar priced device, scaled by speed. If exchanges over its
/// links were never measured, nothing is priced from then on. If its kind differs from the others,
/// parameters are updated by portable operators from then on.
void let_grow(ChosenPlan& chosen, const std::string& profiles, Enforce enforce,
              const Workers& workers, Adaptation& adaptation);

/// Adds devices of an earlier call, by their texts, as if they joined now. A node of the same name
/// is that device.
Result<void> take_earlier(ChosenPlan& chosen, const std::vector<std::string>& joiners,
                          const std::string& profiles, Enforce enforce, const Outside& outside);

}  // namespace motley::control
