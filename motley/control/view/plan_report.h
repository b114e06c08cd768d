#pragma once

#include <string>
#include <vector>

#include "motley/control/planning/chosen_plan.h"
#include "motley/report/page/report_data.h"

namespace motley::control {

/// Reports a plan with prices: its step beside that of an equal split, memory, links, layers, and
/// similar plans. Errors: those of the prediction.
Result<report::ReportData> tell_plan(const ChosenPlan& chosen, const std::string& title);

/// Returns plans similar to a plan with their prices, fastest first, including itself: samples
/// moved between devices (a twentieth of the batch, up to six devices), one device left out or
/// alone (up to eight), an equal split, micro-batches doubled and halved. Omits plans that cannot
/// be lowered or priced.
std::vector<report::Neighbour> find_neighbours(const ChosenPlan& chosen);

}  // namespace motley::control
