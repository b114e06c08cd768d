#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "motley/plan/planner.h"
#include "motley/search/model_stages/memory_repair.h"
#include "motley/search/model_stages/model_stage_costs.h"
#include "motley/search/model_stages/stage_translation.h"
#include "motley/search/split/planner_inputs.h"

namespace motley::search {

/// Most devices of plans that share states: each device has a program of its own then.
inline constexpr std::size_t kMostSharing = 64;

/// A plan of stages that fits, by its program.
struct TakenPlan {
  PricedStagePlan found;
  plan::Plan plan;
  Seconds step;
};
/// Returns the plans by rising step; equal ones keep their order.
std::vector<TakenPlan> fastest_first(std::vector<TakenPlan> plans);

/// Prices plans of stages by their programs, recomputes what they need to fit, and puts the best
/// into an outcome. Errors are those of pricing that no plan causes.
class StagePricing {
 public:
  /// All arguments outlive it. The inputs have a graph.
  StagePricing(const PlannerInputs& inputs, const plan::Problem& problem, ModelStageCosts& costs,
               plan::PlanOutcome& outcome)
      : inputs_(inputs),
        problem_(problem),
        costs_(costs),
        outcome_(outcome),
        translation_(*inputs.graph, problem, costs),
        repair_(problem, costs) {}

  /// Sets what the next plans recompute in each layer.
  void assume(const LayerAssumption& assumption) { translation_.assume(assumption); }
  const StageSums& sums() const { return translation_.sums(); }
  MemoryRepair& repair() { return repair_; }

  /// Takes the plan if it fits, with as little recomputed as possible; else notes the missing
  /// memory. Skips plans whose stages are too slow to be the best.
  Result<void> consider(const PricedStagePlan& found);
  /// Does the same without that check.
  Result<void> fit(const PricedStagePlan& found);
  /// Takes the plan with nothing recomputed and the optimizer's states of several replicas shared.
  Result<void> share_states(const PricedStagePlan& found);
  /// Takes a plan made of another one if it is faster than what is known. `is_counted`: is it one
  /// of those considered?
  Result<void> take_if_faster(const TakenPlan& changed, bool is_counted);

  /// In the order in which they were found.
  const std::vector<TakenPlan>& taken() const { return taken_; }
  /// The best one of those with a weight of two stages where it is read.
  const std::optional<TakenPlan>& apart() const { return apart_; }
  void forget_taken();
  /// Is the outcome's plan one of stages?
  bool is_best() const { return is_best_; }
  bool is_hopeless(const PricedStagePlan& found) const;
  /// Why plans cannot be run.
  std::set<std::string>& refused() { return refused_; }

 private:
  Result<std::optional<plan::Price>> price(plan::Plan& plan, const plan::Plan& apart);
  bool is_seen(const plan::Plan& plan);
  bool is_hopeless(const PricedStagePlan& found, Again& again) const;
  void give_up(const PricedStagePlan& found, const Lacking& lacking, double step);
  Result<void> use_left(const PricedStagePlan& found, plan::Price price, Again& again);
  Result<void> take_priced(const TakenPlan& plan, const plan::Plan& apart,
                           const plan::Price& price);
  Result<void> take(const PricedStagePlan& found, const plan::Plan& plan, const plan::Price& price);

  const PlannerInputs& inputs_;
  const plan::Problem& problem_;
  ModelStageCosts& costs_;
  plan::PlanOutcome& outcome_;
  StageTranslation translation_;
  MemoryRepair repair_;
  std::vector<plan::Plan> seen_;         // that were priced
  std::set<std::string> refused_;        // why plans cannot be run
  std::set<std::string> refused_codes_;  // of errors that are told
  std::vector<TakenPlan> taken_;
  std::optional<TakenPlan> apart_;
  bool is_best_ = false;
};

}  // namespace motley::search
