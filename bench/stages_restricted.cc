#include "bench/stages_restricted.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace motley::bench {

double Restrictions::best() const { return *std::min_element(steps.begin(), steps.end()); }

Json Restrictions::to_json() const {
  Json object = Json::object();
  for (std::size_t i = 0; i < steps.size(); ++i)
    object[std::string(peers::kStageSpaces[i].planner)] =
        std::isfinite(steps[i]) ? Json(steps[i]) : Json(nullptr);
  return object;
}

std::string Restrictions::columns(double whole) const {
  std::string text;
  for (const double step : steps)
    text += std::isfinite(step) ? fmt::format(" {:>7.2f}", step / whole)
                                : fmt::format(" {:>7}", "none");
  return text;
}

std::string restriction_heads() {
  std::string text;
  for (const peers::StageSpaceName& each : peers::kStageSpaces)
    text += fmt::format(" {:>7}", each.planner.substr(0, each.planner.find('-')));
  return text;
}

Result<Restrictions> find_restrictions(const RestrictedFinder& find) {
  Restrictions found;
  for (const peers::StageSpaceName& each : peers::kStageSpaces) {
    MOTLEY_ASSIGN(const search::StageOutcome outcome, find(each.space));
    found.steps.push_back(outcome.best ? outcome.best->price.step.value : INFINITY);
  }
  return found;
}

Result<Restrictions> find_restrictions(const search::StageQuestion& question) {
  return find_restrictions(
      [&](peers::StageSpace space) { return peers::find_restricted(space, question); });
}

}  // namespace motley::bench
