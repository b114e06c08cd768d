#include "motley/search/spmd/hap_search.h"

#include <limits>
#include <utility>
#include <vector>

#include "motley/search/hap/balance.h"
#include "motley/search/spmd/choice_problem.h"

namespace motley::search {
namespace {

constexpr int kMostRounds = 10;

/// What the shares mean to a plan: the part of a step's compute that is split, and the exchanges
/// that move as much as if every device had the largest part.
LinearTime time_of(const SpmdQuestion& question, const SpmdSpace& space, SpmdPrices& even,
                   const synth::Sharding& sharding) {
  double split = 0, all = 0;
  for (std::size_t i = 0; i < space.ways.size(); ++i) {
    if (!space.is_needed[i]) continue;
    const double whole = even.compute(OpId(static_cast<std::int64_t>(i)), space.ways[i][0])[0];
    all += whole;
    if (sharding.ops[i].factor >= 0) split += whole;
  }
  LinearTime time;
  time.shared_flops = split / all;
  std::vector<graph::Form> homes = sharding.sources;
  for (std::size_t i = 0; i < space.ways.size(); ++i) {
    if (!space.is_needed[i]) continue;
    const graph::Strategy& way = sharding.ops[i];
    for (std::size_t o = 0; o < way.operands.size(); ++o) {
      const ValueId value = space.rules[i].operands[o];
      const graph::Form& from = homes[value.index()];
      const graph::Form& to = way.operands[o];
      if (from != to &&
          (from.kind == graph::FormKind::kSharded || to.kind == graph::FormKind::kSharded))
        time.padded_s += even.conversion(value, from, to).exchange;
    }
    for (std::size_t r = 0; r < way.results.size(); ++r)
      homes[question.graph->ops[i].outputs[r].index()] = way.results[r];
  }
  return time;
}

}  // namespace

Result<SpmdPlan> find_hap_plan(const SpmdQuestion& question) {
  const std::vector<double> ones(question.devices.size(), 1.0);
  const SpmdSpace even_space = find_space(*question.graph, question.global_batch, ones);
  MOTLEY_ASSIGN(SpmdPrices even, SpmdPrices::make(*question.graph, even_space, *question.cluster,
                                                  *question.costs, question.devices, ones));
  HapCluster cluster;
  MOTLEY_ASSIGN(cluster.device_flops, whole_speeds(question, even_space));
  Shares shares = proportional_shares(cluster);
  synth::Sharding best;
  double least = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kMostRounds; ++round) {
    const SpmdSpace space = find_space(*question.graph, question.global_batch, shares);
    MOTLEY_ASSIGN(SpmdPrices prices, SpmdPrices::make(*question.graph, space, *question.cluster,
                                                      *question.costs, question.devices, shares));
    SpmdObjective objective;
    objective.states = question.lowering.optimizer.states();
    const ChoiceProblem problem(*question.graph, space, prices, objective);
    const TableSolution solution = solve_tables(problem.tables());
    if (!(solution.cost < least)) break;
    least = solution.cost;
    best.shares = shares;
    problem.apply(solution.choice, best);
    shares = balance(time_of(question, even_space, even, best), cluster);
  }
  for (const DeviceId id : question.devices)
    best.devices.push_back(question.cluster->device(id).name);
  return price_sharding(question, question.devices, even_space.rules, std::move(best));
}

}  // namespace motley::search
