#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "motley/plan/planner.h"
#include "motley/search/split/planner_inputs.h"

namespace motley::search {

/// A planner of steps in as many micro-batches as somebody asked for, where others take as few as
/// memory allows: asks another planner for one micro-batch, and prices its plan for all of them;
/// of planners that search, beside the plans that know all of them.
/// The bound is that of the batch at once, which no step of several undercuts. The simple
/// alternatives shown beside it take the batch at once, too.
/// Who asks for micro-batches asks for batch norm by the statistics of each, as PyTorch's loop has
/// them (plan::BatchNormSpan); other planners' must leave the result as it is.
class Accumulating : public plan::Planner {
 public:
  /// `times` > 1. What the inputs point to must outlive it.
  Accumulating(const PlannerInputs& inputs, std::unique_ptr<plan::Planner> one, std::int64_t times)
      : inputs_(inputs), one_(std::move(one)), times_(times) {}
  std::string_view name() const override { return one_->name(); }
  /// Usage errors: a batch, or samples of a manual split, that are no multiple; a model that cannot
  /// be accumulated (synth.accumulation).
  Result<plan::PlanOutcome> plan(const plan::Problem& problem) const override;

 private:
  plan::Problem with_own_statistics(const plan::Problem& problem) const;
  std::string as_asked_for(const plan::Problem& problem) const;
  Result<plan::Problem> one_micro_batch(const plan::Problem& problem) const;
  Result<void> choose_exchanges(const plan::Problem& problem, plan::Plan& plan) const;
  Result<void> take_repeated(const plan::Problem& problem, plan::Plan plan,
                             std::vector<std::string> why, plan::PlanOutcome& outcome) const;
  Result<void> consider(const plan::Problem& problem, const plan::Plan& plan,
                        std::vector<std::string> why, plan::PlanOutcome& outcome) const;
  Result<void> consider_split(const plan::Problem& problem, plan::PlanOutcome& outcome) const;
  Result<void> consider_sharding(const plan::Problem& problem, plan::PlanOutcome& outcome) const;
  Result<Seconds> lower_bound(const plan::Problem& problem, Seconds step) const;
  void say_what_lacks(const plan::Problem& problem, const plan::Plan& plan,
                      const plan::Price& price, plan::PlanOutcome& outcome) const;
  PlannerInputs inputs_;
  std::unique_ptr<plan::Planner> one_;
  std::int64_t times_;
};

}  // namespace motley::search
