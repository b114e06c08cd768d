#include "motley/search/planners.h"

#include <fmt/format.h>

#include <utility>

#include "motley/base/text.h"
#include "motley/search/portfolio.h"
#include "motley/search/restricted_planner.h"
#include "motley/search/split/fixed_planners.h"
#include "motley/search/split/water_filling.h"
#include "motley/search/spmd/spmd_planner.h"
#include "motley/search/stage_planner.h"

namespace motley::search {
namespace {

template <typename Planner>
std::unique_ptr<plan::Planner> make(const PlannerInputs& inputs) {
  return std::make_unique<Planner>(inputs);
}

template <SpmdMethod method>
std::unique_ptr<plan::Planner> make_sharding(const PlannerInputs& inputs) {
  return std::make_unique<SpmdPlanner>(method, inputs);
}

template <StageSpace space>
std::unique_ptr<plan::Planner> make_restricted(const PlannerInputs& inputs) {
  return std::make_unique<RestrictedPlanner>(space, inputs);
}

using Maker = std::unique_ptr<plan::Planner> (*)(const PlannerInputs&);

/// A new planner is a line here.
constexpr std::pair<std::string_view, Maker> kMakers[] = {
    {"auto", make<Portfolio>},
    {"split", make<WaterFilling>},
    {"spmd", make_sharding<SpmdMethod::kSpmd>},
    {"hap", make_sharding<SpmdMethod::kHap>},
    {"stages", make<StagePlanner>},
    {"equal-stages", make_restricted<StageSpace::kEqual>},
    {"uniform-stages", make_restricted<StageSpace::kUniform>},
    {"amp", make_restricted<StageSpace::kAmp>},
    {"sailor", make_restricted<StageSpace::kSailor>},
    {"harp", make_restricted<StageSpace::kHarp>},
    {"zorse", make_restricted<StageSpace::kZorse>},
    {"equal", make<EqualPlanner>},
    {"proportional", make<ProportionalPlanner>},
    {"manual", make<ManualPlanner>},
    {"random", make<RandomPlanner>},
};

}  // namespace

std::vector<std::string> planner_names() {
  std::vector<std::string> names;
  for (const auto& [name, maker] : kMakers) names.emplace_back(name);
  return names;
}

Result<std::unique_ptr<plan::Planner>> make_planner(std::string_view name,
                                                    const PlannerInputs& inputs) {
  for (const auto& [known, maker] : kMakers) {
    if (known == name) return maker(inputs);
  }
  const std::vector<std::string> names = planner_names();
  return usage_error("search.unknown-planner",
                     fmt::format("unknown planner '{}', wanted one of {}{}", name, join(names, " "),
                                 suggestion_clause(name, names)));
}

}  // namespace motley::search
