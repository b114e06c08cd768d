#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "motley/plan/planner.h"
#include "motley/search/model_stages/stage_pricing.h"

namespace motley::search {

/// Between what a search cuts: layers, pieces of them, or layers first and pieces where that pays.
enum class StageCuts { kAtLayers, kAtPieces, kRefined };

/// What passes know.
struct PassInput {
  const plan::Problem& problem;
  const ModelStageCosts& costs;
  const plan::PlanOutcome& outcome;
  const StageSums& sums;
  StageCuts cuts;
  const std::vector<TakenPlan>& taken;    ///< plans that fit, in the order of their finding
  std::size_t first_new = 0;              ///< of these, that the pass was not asked about before
  const std::optional<TakenPlan>& apart;  ///< the best one with tied weights where they are read
  bool is_best = false;                   ///< is the outcome's plan one of stages?
};

/// A search of stages that a pass wants.
struct StageRequest {
  LayerAssumption assumption;
  std::vector<std::size_t> cuts;  ///< numbers of pieces, between which it cuts
  int rounds = 1;                 ///< of planning again with less memory
};

/// A plan that a pass made of one that fits.
struct StageCandidate {
  PricedStagePlan found;
  std::optional<plan::Plan> plan;   ///< absent: that of the stages found
  std::optional<Seconds> expected;  ///< what it may take; absent: nobody knows
};

/// A step of planning: wants plans searched, or makes some of those that fit.
struct PlanningPass {
  std::string_view name;
  std::optional<StageRequest> (*search)(const PassInput&) = nullptr;
  std::vector<StageCandidate> (*improve)(const PassInput&) = nullptr;
  bool is_refining = false;  ///< only where StageCuts::kRefined is wanted
  bool is_counted = true;    ///< are its plans among those considered?
};
/// In their order.
std::span<const PlanningPass> planning_passes();

/// Is there no plan, or does the plan recompute something?
bool lacks_memory(const plan::PlanOutcome& outcome);

}  // namespace motley::search
