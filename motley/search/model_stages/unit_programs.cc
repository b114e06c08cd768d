#include "motley/search/model_stages/unit_programs.h"

#include "motley/search/spmd/spmd_planner.h"
#include "motley/synth/ranks/lower_sharded.h"
#include "motley/synth/ranks/sharded_plan.h"

namespace motley::search {

std::optional<program::Program> UnitPrograms::find(std::size_t unit,
                                                   std::int64_t micro_batch) const {
  const std::size_t like = first_like(unit);
  const auto [made, is_new] = programs_.try_emplace({like, micro_batch});
  if (is_new) made->second = lower(like, micro_batch);
  std::optional<program::Program> program = made->second;
  const std::vector<std::size_t> ranks = units_.first_ranks(unit);
  for (std::size_t part = 0; program && part < ranks.size(); ++part)
    program->devices[part].device =
        units_.problem().cluster->device(units_.ways(unit).devices[ranks[part]]).name;
  return program;
}

std::size_t UnitPrograms::first_like(std::size_t unit) const {
  const plan::Region& ways = units_.ways(unit);
  std::size_t first = 0;
  for (;; ++first) {
    const plan::Region& other = units_.ways(first);
    if (other.operators == ways.operators && other.parameters == ways.parameters &&
        other.shares == ways.shares && units_.first_ranks(first) == units_.first_ranks(unit))
      return first;
  }
}

std::optional<program::Program> UnitPrograms::lower(std::size_t unit,
                                                    std::int64_t micro_batch) const {
  const plan::Problem& problem = units_.problem();
  const graph::ShortGraph& shown = graph_.shown();
  plan::Plan plan = plan::blank_plan(problem);
  plan.global_batch = micro_batch;
  plan.replicas = {{micro_batch, {units_.ways(unit)}}};
  const auto found = synth::find_ruled_sharding(shown.graph, plan, *problem.cluster);
  if (!found) return std::nullopt;
  auto program =
      synth::lower_ranks(shown.graph, found->sharding, found->rules, units_.first_ranks(unit),
                         spmd_question(inputs_, problem).lowering);
  if (!program) return std::nullopt;
  set_origins(shown, *program);
  return *std::move(program);
}

}  // namespace motley::search
