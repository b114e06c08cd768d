#include "motley/search/planners.h"

#include <fmt/format.h>

#include <functional>
#include <utility>

#include "motley/base/text.h"
#include "motley/search/fixed_planners.h"
#include "motley/search/water_filling.h"

namespace motley::search {
namespace {

template <typename Planner>
std::unique_ptr<plan::Planner> make() {
  return std::make_unique<Planner>();
}

using Maker = std::unique_ptr<plan::Planner> (*)();

const std::vector<std::pair<std::string, Maker>>& makers() {
  static const std::vector<std::pair<std::string, Maker>> kMakers = {
      {"auto", make<WaterFilling>},
      {"equal", make<EqualPlanner>},
      {"proportional", make<ProportionalPlanner>},
      {"manual", make<ManualPlanner>},
      {"random", make<RandomPlanner>},
  };
  return kMakers;
}

}  // namespace

std::vector<std::string> planner_names() {
  std::vector<std::string> names;
  for (const auto& [name, maker] : makers()) names.push_back(name);
  return names;
}

Result<std::unique_ptr<plan::Planner>> make_planner(std::string_view name,
                                                    const std::vector<std::string>& more) {
  for (const auto& [known, maker] : makers()) {
    if (known == name) return maker();
  }
  std::vector<std::string> names = planner_names();
  names.insert(names.end(), more.begin(), more.end());
  return usage_error("search.unknown-planner",
                     fmt::format("unknown planner '{}', wanted one of {}{}", name, join(names, " "),
                                 suggestion_clause(name, names)));
}

}  // namespace motley::search
