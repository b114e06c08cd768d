#pragma once

#include <functional>
#include <string>
#include <vector>

#include "motley/base/json.h"
#include "motley/base/result.h"
#include "peers/spaces/stage_spaces.h"

namespace motley::bench {

/// What each restriction of the space costs: the best plans' steps in the order of kStageSpaces;
/// infinite: nothing fits.
struct Restrictions {
  std::vector<double> steps;
  double best() const;
  Json to_json() const;                     ///< by planner; null: nothing fits
  std::string columns(double whole) const;  ///< steps over that of the whole space
};
std::string restriction_heads();

using RestrictedFinder = std::function<Result<search::StageOutcome>(peers::StageSpace)>;
Result<Restrictions> find_restrictions(const RestrictedFinder& find);
/// Of the same costs.
Result<Restrictions> find_restrictions(const search::StageQuestion& question);

}  // namespace motley::bench
