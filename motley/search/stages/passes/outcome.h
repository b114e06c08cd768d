#pragma once

#include <vector>

#include "motley/search/stages/passes/search_space.h"

namespace motley::search {

/// Says why no shape fits.
void explain_infeasible(const SearchSpace& space, StageOutcome& outcome);

/// Proved: all plans without interleaved stages were tried or ruled out.
enum class Ruled { kSome, kAllApart };

/// Chooses the best plan and its runner-ups: the best ones, and the best of each depth among them,
/// as a program may take more than is said here, most where pipelines are deep; interleaved ones
/// beside the others. `least`: the bound of rates.
void choose_plans(const SearchSpace& space, std::vector<PricedStagePlan> priced, Seconds least,
                  Ruled ruled, StageOutcome& outcome);

}  // namespace motley::search
