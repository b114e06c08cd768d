#pragma once

#include "motley/search/split/split_planner.h"

namespace motley::search {

class WaterFilling : public SplitPlanner {
 public:
  using SplitPlanner::SplitPlanner;
  std::string_view name() const override { return "split"; }

 private:
  Result<SplitChoice> choose(const Study& study) const override;
};

}  // namespace motley::search
