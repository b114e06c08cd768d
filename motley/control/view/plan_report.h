#pragma once

#include <string>
#include <vector>

#include "motley/control/planning/chosen_plan.h"
#include "motley/report/page/report_data.h"

namespace motley::control {

/// Reports a priced plan: its step, the equal split's, memory, links, layers, and similar plans.
/// Errors: those of the prediction.
Result<report::ReportData> tell_plan(const ChosenPlan& chosen, const std::string& title);

/// Prices similar plans and the plan itself, fastest first: a twentieth of the batch moved between
/// up to six devices, one of up to eight devices left out or alone, an equal split, micro-batches
/// doubled and halved. Omits plans that cannot be lowered or priced.
std::vector<report::Neighbour> find_neighbours(const ChosenPlan& chosen);

}  // namespace motley::control
