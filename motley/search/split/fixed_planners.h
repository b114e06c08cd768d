#pragma once

#include "motley/search/split/split_planner.h"

namespace motley::search {

/// Planners of one rule each (planners.h).
class EqualPlanner : public SplitPlanner {
 public:
  using SplitPlanner::SplitPlanner;
  std::string_view name() const override { return "equal"; }

 private:
  Result<SplitChoice> choose(const Study& study) const override;
};

class ProportionalPlanner : public SplitPlanner {
 public:
  using SplitPlanner::SplitPlanner;
  std::string_view name() const override { return "proportional"; }

 private:
  Result<SplitChoice> choose(const Study& study) const override;
};

class ManualPlanner : public SplitPlanner {
 public:
  using SplitPlanner::SplitPlanner;
  std::string_view name() const override { return "manual"; }

 private:
  Result<SplitChoice> choose(const Study& study) const override;
};

class RandomPlanner : public SplitPlanner {
 public:
  using SplitPlanner::SplitPlanner;
  std::string_view name() const override { return "random"; }

 private:
  Result<SplitChoice> choose(const Study& study) const override;
};

/// Returns an outcome without a plan, with the equal split's baselines and shortages.
Result<plan::PlanOutcome> find_baselines(const PlannerInputs& inputs, const plan::Problem& problem);

}  // namespace motley::search
