#include "motley/search/planners.h"

#include <fmt/format.h>

#include "motley/base/text.h"
#include "motley/search/model_stages/stage_planner.h"
#include "motley/search/portfolio.h"
#include "motley/search/split/fixed_planners.h"
#include "motley/search/split/water_filling.h"
#include "motley/search/spmd/spmd_planner.h"

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

constexpr NamedPlanner kPlanners[] = {
    {"auto", make<Portfolio>},
    {"split", make<WaterFilling>},
    {"spmd", make_sharding<SpmdMethod::kSpmd>},
    {"hap", make_sharding<SpmdMethod::kHap>},
    {"stages", make<StagePlanner>},
    {"equal", make<EqualPlanner>},
    {"proportional", make<ProportionalPlanner>},
    {"manual", make<ManualPlanner>},
    {"random", make<RandomPlanner>},
};

}  // namespace

std::span<const NamedPlanner> planners() { return kPlanners; }

Result<std::unique_ptr<plan::Planner>> make_planner(std::string_view name,
                                                    const PlannerInputs& inputs,
                                                    std::span<const NamedPlanner> among) {
  std::vector<std::string> names;
  for (const NamedPlanner& each : among) {
    if (each.name == name) return each.make(inputs);
    names.emplace_back(each.name);
  }
  return usage_error("search.unknown-planner",
                     fmt::format("unknown planner '{}', wanted one of {}{}", name, join(names, " "),
                                 suggestion_clause(name, names)));
}

}  // namespace motley::search
