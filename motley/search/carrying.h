#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "motley/plan/planner.h"
#include "motley/search/split/planner_inputs.h"

namespace motley::search {

/// Plans of another planner whose last exchanges may end in the next step (plan::Plan::carried).
/// Tries some numbers and places of them by price, or takes those that
/// somebody asked for. The bound of a plan that carries some is that of each lane's total work
/// (spmd/bound.h), which holds for all.
class Carrying : public plan::Planner {
 public:
  /// Without `wanted`, exchanges are carried where a step takes this much less: carrying keeps
  /// gradients in memory, and its bound is weaker.
  static constexpr double kLeastGain = 0.01;

  /// What the inputs point to must outlive it.
  Carrying(const PlannerInputs& inputs, std::unique_ptr<plan::Planner> planner,
           std::optional<plan::Carried> wanted)
      : inputs_(inputs), planner_(std::move(planner)), wanted_(wanted) {}
  std::string_view name() const override { return planner_->name(); }
  Result<plan::PlanOutcome> plan(const plan::Problem& problem) const override;

 private:
  PlannerInputs inputs_;
  std::unique_ptr<plan::Planner> planner_;
  std::optional<plan::Carried> wanted_;
};

}  // namespace motley::search
