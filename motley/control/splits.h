#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "motley/control/adapting.h"
#include "motley/control/chosen_plan.h"

namespace motley::control {

/// A training whose split of the batch is decided while it runs, by a policy of adapt/policies.h.
/// It begins as the chosen plan says. Where there are prices, they are what is believed of devices
/// before they are seen, and devices that the plan leaves idle may be taken; without, the plan's
/// devices are learned from nothing. Usage errors: a plan that does not split the batch alone; a
/// policy that is not there.
Result<std::shared_ptr<Adaptation>> adapt_split(const ChosenPlan& chosen,
                                                const std::optional<Predicted>& predicted,
                                                const std::string& policy);

}  // namespace motley::control
