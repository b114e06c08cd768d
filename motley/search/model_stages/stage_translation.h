#pragma once

#include <optional>
#include <string>
#include <vector>

#include "motley/plan/planner.h"
#include "motley/search/model_stages/model_stage_costs.h"
#include "motley/search/model_stages/stage_recompute.h"
#include "motley/search/stages/costs/stage_sums.h"
#include "motley/search/stages/stage_evaluator.h"

namespace motley::search {

/// Plans of stages of a model as plans of its graph.
class StageTranslation {
 public:
  /// What is given must outlive it.
  StageTranslation(const graph::Graph& graph, const plan::Problem& problem, ModelStageCosts& costs)
      : graph_(graph), problem_(problem), costs_(costs) {}

  /// Supposes this of layers from here on.
  void assume(const LayerAssumption& assumption);
  /// Sums of the costs, under what was supposed.
  const StageSums& sums() const { return *sums_; }

  /// The plan with a weight of two stages where it is read.
  plan::Plan translate(const PricedStagePlan& found, const Again& again) const;
  /// The same plan with such a weight in the first of its stages alone (tied_weights.h).
  plan::Plan give_tied(const plan::Plan& plan) const;
  /// Nothing is recomputed, unless given stages say so.
  Again nothing_again(const StagePlan& plan) const;
  /// By replica and stage what it has, "emb to h.3".
  std::vector<std::vector<std::string>> name_stages(const StagePlan& plan) const;

 private:
  const graph::Graph& graph_;
  const plan::Problem& problem_;
  ModelStageCosts& costs_;
  std::optional<StageSums> sums_;
  std::size_t units_ = 0;  // of the sums
};

/// "2 replicas of 3 and 1 stages"; "interleaved" where devices have several of them.
std::string shape_text(const plan::Plan& plan);

}  // namespace motley::search
