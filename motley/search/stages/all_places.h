#pragma once

#include <functional>

#include "motley/search/stages/stage_plan.h"

namespace motley::search {

/// Calls `visit` with the plan in all possible places of its stages until it returns false: in
/// every host with free devices, but in only one of identical empty hosts. Devices of a host are
/// identical, so slots are assigned in order. Returns false if `visit` did. For few devices: the
/// number of places grows with the ways to distribute stages over hosts.
bool visit_places(StagePlan plan, const StageCosts& costs,
                  const std::function<bool(const StagePlan&)>& visit);

}  // namespace motley::search
