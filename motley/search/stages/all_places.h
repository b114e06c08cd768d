#pragma once

#include <functional>

#include "motley/search/stages/stage_plan.h"

namespace motley::search {

/// Calls `visit` with the plan in all places that its stages may have, until it says false: in
/// every host with devices left, but in one only of those that are identical and empty. Devices of
/// a host are identical, so slots are given in order. False if `visit` did. For few devices: their
/// number grows as the ways to put stages into hosts.
bool visit_places(StagePlan plan, const StageCosts& costs,
                  const std::function<bool(const StagePlan&)>& visit);

}  // namespace motley::search
