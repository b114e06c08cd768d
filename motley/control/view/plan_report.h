#pragma once

#include <string>
#include <vector>

#include "motley/control/planning/chosen_plan.h"
#include "motley/report/page/report_data.h"

namespace motley::control {

/// What is to be said of a plan that has prices: its step beside that of an equal split, memory,
/// links, layers, and what plans near it would take. Errors: those of the prediction.
Result<report::ReportData> tell_plan(const ChosenPlan& chosen, const std::string& title);

/// Plans near a plan, priced as it is, the fastest first, itself among them: samples moved from
/// one device to another (a twentieth of the batch, of up to six devices), one device left out or
/// alone (of up to eight), an equal split, micro-batches twice and half as many. Those that cannot
/// be lowered or priced are left out.
std::vector<report::Neighbour> find_neighbours(const ChosenPlan& chosen);

}  // namespace motley::control
