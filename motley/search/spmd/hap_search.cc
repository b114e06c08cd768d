#include "motley/search/spmd/hap_search.h"

#include <limits>
#include <utility>
#include <vector>

#include "motley/search/hap/balance.h"
#include "motley/search/spmd/form_changes.h"

namespace motley::search {
namespace {

constexpr int kMostRounds = 10;

/// What the shares mean to a plan: the part of a step's compute that is split, and the exchanges
/// that move as much as if every device had the largest part.
LinearTime time_of(const SpmdStudy& study, SpmdPrices& even, const synth::Sharding& sharding) {
  const WholeStep& whole = study.whole_step(study.kinds().of(study.question().devices[0]));
  LinearTime time;
  for (std::size_t i = 0; i < whole.seconds.size(); ++i)
    if (sharding.ops[i].factor >= 0) time.shared_flops += whole.seconds[i] / whole.total;
  const auto is_sharded = [](const graph::Form& form) {
    return form.kind == graph::FormKind::kSharded;
  };
  for (const auto& [value, from, to, reader] : find_changes(study.graph(), study.space(), sharding))
    if (is_sharded(from) || is_sharded(to))
      time.padded_s += even.conversion(value, from, to).exchange;
  return time;
}

}  // namespace

Result<SpmdPlan> find_hap_plan(SpmdStudy& study) {
  const std::vector<DeviceId>& devices = study.question().devices;
  SpmdPrices even = study.prices(study.space(), devices, std::vector<double>(devices.size(), 1.0));
  HapCluster cluster;
  cluster.device_flops = study.speeds();
  Shares shares = proportional_shares(cluster);
  synth::Sharding best;
  double least = std::numeric_limits<double>::infinity();
  SpmdObjective objective;
  objective.states = study.question().lowering.optimizer.states();
  for (int round = 0; round < kMostRounds; ++round) {
    const SpmdChoices& choices = study.choices(shares);
    SpmdPrices prices = study.prices(choices.space, devices, shares);
    const TableSolution solution = choices.problem.solve(choices.problem.costs(prices, objective));
    if (!(solution.cost < least)) break;
    least = solution.cost;
    best = study.sharding(choices, solution.choice, devices, shares);
    shares = balance(time_of(study, even, best), cluster);
  }
  return price_sharding(study, devices, std::move(best));
}

}  // namespace motley::search
