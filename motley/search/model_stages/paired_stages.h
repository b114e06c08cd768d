#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "motley/plan/plan.h"
#include "motley/search/model_stages/model_stage_costs.h"
#include "motley/search/stages/stage_evaluator.h"

namespace motley::search {

/// A stage of several devices that waits for what these exchange in passes.
struct WaitingStage {
  std::size_t replica = 0, stage = 0;
  bool operator==(const WaitingStage&) const = default;
};

/// Those that wait for more than 1 % of the step and have two micro-batches or more.
std::vector<WaitingStage> find_waiting(const ModelStageCosts& costs, const PricedStagePlan& found);

/// How many micro-batches are under way beside those that are without pairs: none; one for each
/// stage behind; one beyond that.
enum class MoreAhead : std::uint8_t { kNothing, kBehind, kBehindAndOne };
inline constexpr MoreAhead kTriedAhead[] = {MoreAhead::kBehindAndOne, MoreAhead::kBehind,
                                            MoreAhead::kNothing};

/// The plan with a forward and a backward pass of two micro-batches done together in these stages
/// (plan::Region::turns), which may hide what they wait for. What a pair gives is there at its end,
/// so more has to be under way before, if memory holds it. One region a stage.
plan::Plan pair_stages(plan::Plan plan, const std::vector<WaitingStage>& stages, MoreAhead more);

}  // namespace motley::search
