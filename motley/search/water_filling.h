#pragma once

#include "motley/search/split_planner.h"

namespace motley::search {

/// The planner "auto" (planners.h).
class WaterFilling : public SplitPlanner {
 public:
  std::string_view name() const override { return "auto"; }

 private:
  Result<Choice> choose(const Study& study) const override;
};

}  // namespace motley::search
