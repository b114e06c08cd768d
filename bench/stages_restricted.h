#pragma once

#include <functional>
#include <string>
#include <vector>

#include "motley/base/json.h"
#include "motley/base/result.h"
#include "peers/spaces/stage_spaces.h"

namespace motley::bench {

/// The best step under each restriction, in the order of kStageSpaces; infinite: nothing fits.
struct Restrictions {
  std::vector<double> steps;
  double best() const;
  Json to_json() const;                     ///< by planner; null: nothing fits
  std::string columns(double whole) const;  ///< steps over the whole space's
};
std::string restriction_heads();

using RestrictedFinder = std::function<Result<search::StageOutcome>(peers::StageSpace)>;
Result<Restrictions> find_restrictions(const RestrictedFinder& find);
/// The same for these costs.
Result<Restrictions> find_restrictions(const search::StageQuestion& question);

}  // namespace motley::bench
