#include "peers/spaces/restricted_planner.h"

#include <fmt/format.h>

#include <array>
#include <utility>
#include <vector>

#include "motley/search/model_stages/stage_planner.h"
#include "motley/search/split/fixed_planners.h"

namespace motley::peers {
namespace {

template <std::size_t place>
std::unique_ptr<plan::Planner> make_restricted(const search::PlannerInputs& inputs) {
  return std::make_unique<RestrictedPlanner>(kStageSpaces[place].space, inputs);
}

template <std::size_t... places>
constexpr auto make_all(std::index_sequence<places...>) {
  return std::array{search::NamedPlanner{kStageSpaces[places].planner, make_restricted<places>}...};
}

constexpr auto kRestricted = make_all(std::make_index_sequence<std::size(kStageSpaces)>());

}  // namespace

std::span<const search::NamedPlanner> planners() {
  static const auto all = [] {
    std::vector<search::NamedPlanner> all(search::planners().begin(), search::planners().end());
    all.insert(all.end(), kRestricted.begin(), kRestricted.end());
    return all;
  }();
  return all;
}

Result<plan::PlanOutcome> RestrictedPlanner::plan(const plan::Problem& problem) const {
  if (inputs_.graph == nullptr || inputs_.costs == nullptr || problem.devices.size() < 2) {
    MOTLEY_ASSIGN(plan::PlanOutcome outcome, search::EqualPlanner(inputs_).plan(problem));
    outcome.planner = name();
    return outcome;
  }
  MOTLEY_ASSIGN(plan::PlanOutcome outcome, search::find_baselines(inputs_, problem));
  outcome.planner = name();
  MOTLEY_RETURN_IF_ERROR(search::consider_stages(
      inputs_, problem, outcome,
      {search::StageCuts::kAtLayers, search::UnitKinds::kIdentical,
       [&](const search::StageQuestion& question, const search::FinerLayers&) {
         return find_restricted(space_, question);
       }}));
  outcome.why.push_back(fmt::format("{} of {} {}", outcome.plan ? "the best found" : "no plan",
                                    stage_space_name(space_).title,
                                    outcome.plan ? "alone" : "fits"));
  return outcome;
}

}  // namespace motley::peers
