#include "motley/search/spmd/hap_search.h"

#include <limits>
#include <utility>
#include <vector>

#include "motley/search/spmd/balance.h"
#include "motley/search/spmd/form_changes.h"

namespace motley::search {
namespace {

constexpr int kMostRounds = 10;

/// The dependence of a plan on shares: the part of compute that is split, and the seconds of
/// exchanges that move as much as if every device had the largest part.
struct ShareTerms {
  double shared = 0, padded = 0;
};

ShareTerms terms_of(const SpmdStudy& study, SpmdPrices& even, const synth::Sharding& sharding) {
  const WholeStep& whole = study.whole_step(study.kinds().of(study.question().devices[0]));
  ShareTerms terms;
  for (std::size_t i = 0; i < whole.seconds.size(); ++i)
    if (sharding.ops[i].factor >= 0) terms.shared += whole.seconds[i] / whole.total;
  const auto is_sharded = [](const graph::Form& form) {
    return form.kind == graph::FormKind::kSharded;
  };
  for (const auto& [value, from, to, reader] : find_changes(study.graph(), study.space(), sharding))
    if (is_sharded(from) || is_sharded(to))
      terms.padded +=
          study.space().value_count[value.index()] * even.conversion(value, from, to).exchange;
  return terms;
}

}  // namespace

Result<SpmdPlan> find_hap_plan(SpmdStudy& study) {
  const std::vector<DeviceId>& devices = study.question().devices;
  SpmdPrices even = study.prices(study.space(), devices, std::vector<double>(devices.size(), 1.0));
  const std::vector<double> speeds = study.speeds();
  std::vector<double> shares = balance(speeds, 1, 0);  // proportional to speed
  synth::Sharding best;
  double least = std::numeric_limits<double>::infinity();
  SpmdObjective objective;
  objective.states = plan::count_states(study.question().lowering.recipe);
  for (int round = 0; round < kMostRounds; ++round) {
    const SpmdChoices& choices = study.choices(shares);
    SpmdPrices prices = study.prices(choices.space, devices, shares);
    const TableSolution solution = choices.problem.solve(choices.problem.costs(prices, objective));
    if (!(solution.cost < least)) break;
    least = solution.cost;
    best = study.sharding(choices, solution.choice, devices, shares);
    const ShareTerms terms = terms_of(study, even, best);
    shares = balance(speeds, terms.shared, terms.padded);
  }
  return price_sharding(study, devices, std::move(best));
}

}  // namespace motley::search
