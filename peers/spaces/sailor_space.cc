#include <algorithm>

#include "motley/search/stages/costs/merged_layers.h"
#include "motley/search/stages/shapes/packing_lp.h"
#include "motley/search/stages/shapes/whole_replicas.h"
#include "peers/spaces/restricted_search.h"

namespace motley::peers {
namespace {

constexpr int kLpColumns = 60;
constexpr double kQuicker = 1.01;  // ratio of the times tried

/// Fits `replicas` replicas of `samples` each in `seconds`, with even stages; empty: too many.
std::vector<search::ReplicaShape> fit_replicas(const search::ShapeSearch& search, double seconds,
                                               std::int64_t samples, std::int64_t micro,
                                               int replicas) {
  const std::vector<search::DevicePool>& pools = search.sums().costs().pools();
  std::vector<double> limits, prices;
  std::vector<int> devices;
  for (const search::DevicePool& pool : pools) {
    limits.push_back(pool.devices);
    devices.push_back(pool.devices);
    prices.push_back(1.0 / pool.devices);
  }
  search::PackingLp lp(limits);
  std::vector<search::ReplicaShape> shapes;
  std::vector<search::ShapeOffer> offers;
  for (int round = 0; round < kLpColumns; ++round) {
    const auto shape = search.cheapest({seconds, samples, micro, prices});
    // If all replicas cost one or more, no more than the prices' sum fit.
    if (!shape || (round > 0 && shape->cost >= 1 - 1e-9)) break;
    shapes.push_back(shape->shape);
    offers.push_back({1, search.devices(shape->shape)});
    lp.add(1, std::vector<double>(offers.back().devices.begin(), offers.back().devices.end()));
    lp.solve();
    prices = lp.prices();
  }
  if (shapes.empty() || lp.solve() < replicas - 1e-9) return {};
  std::vector<search::ReplicaShape> chosen;
  const std::vector<int> counts = search::choose_replicas(offers, devices);
  for (std::size_t i = 0; i < counts.size(); ++i)
    chosen.insert(chosen.end(), static_cast<std::size_t>(counts[i]), shapes[i]);
  if (static_cast<int>(chosen.size()) < replicas) return {};
  chosen.resize(static_cast<std::size_t>(replicas));
  return chosen;
}

search::StagePlan over_layers(const RestrictedSearch& search, const search::MergedLayers& stages,
                              const std::vector<search::ReplicaShape>& shapes) {
  const std::vector<std::int64_t> samples = search.even_samples(shapes.size());
  search::StagePlan plan;
  for (std::size_t r = 0; r < shapes.size(); ++r) {
    search::StageReplica replica{{}, shapes[r].micro_batch, samples[r]};
    for (const auto& [first, end, unit] : shapes[r].stages)
      replica.stages.push_back({stages.cut(first), stages.cut(end), unit});
    plan.replicas.push_back(std::move(replica));
  }
  return plan;
}

}  // namespace

void search_sailor(RestrictedSearch& search) {
  search_equal(search);  // the space's corner as the start
  if (!(search.best_step() < 1e15)) return;
  const int all = search.devices();
  for (const std::int64_t micro : search.costs().micro_batches())
    for (std::size_t count = 1; count <= search.most_stages(); ++count) {
      auto stages = search::MergedLayers::even(search.costs(), count);
      stages.set_micro_batches({micro});
      const search::StageSums sums(stages);
      const search::ShapeSearch shapes(sums, {2.0}, {.one_layer_stages = true});
      for (int base = 1; base <= all; base *= 2)
        for (const int replicas : {base, 3 * base / 2}) {
          if (replicas * static_cast<int>(count) > all || (base == 1 && replicas != 1) ||
              replicas > search.batch())
            continue;
          const std::int64_t samples =
              search.even_samples(static_cast<std::size_t>(replicas)).front();
          double seconds = search.best_step() / kQuicker;
          auto chosen = fit_replicas(shapes, seconds, samples, micro, replicas);
          while (!chosen.empty()) {
            search.offer(over_layers(search, stages, chosen));
            seconds = std::min(seconds, search.best_step()) / kQuicker;
            chosen = fit_replicas(shapes, seconds, samples, micro, replicas);
          }
        }
    }
}

}  // namespace motley::peers
