#include "motley/search/model_stages/least_step.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace motley::search {
namespace {

/// By pool and piece: seconds of a sample, on one device.
std::vector<std::vector<double>> find_least_times(const ModelUnits& units,
                                                  const LayerTimes& times) {
  std::vector<std::vector<double>> found;
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    if (units[unit].degree() > 1) continue;
    // A step of one micro-batch adds up nothing.
    const std::vector<Seconds>& sums = times.adding_up(unit);
    std::vector<double>& least =
        found.emplace_back(sums.size(), std::numeric_limits<double>::infinity());
    for (const std::int64_t batch : units.micro_batches()) {
      if (!times.knows(unit, batch)) continue;
      const std::vector<LayerWork>& work = times.work(unit, batch, Recompute::kNothing);
      for (std::size_t l = 0; l < least.size(); ++l)
        least[l] = std::min(least[l], (work[l].forward + work[l].backward - sums[l]).value /
                                          static_cast<double>(batch));
    }
  }
  return found;
}

}  // namespace

/// max over prices y of devices, all together worth 1, of batch * sum over layers of the least
/// y_p t_lp: the dual of spreading layers' samples over pools, so every y bounds it. Prices rise
/// where the cheapest spread puts more work than elsewhere.
Seconds find_least_step(const ModelUnits& units, const LayerTimes& layer_times) {
  constexpr int kRounds = 300;  // the bound rises by less than 0.1 % in more
  const std::vector<std::vector<double>> times = find_least_times(units, layer_times);
  const auto batch = static_cast<double>(units.problem().global_batch);
  std::vector<double> prices(times.size(), 1);
  double best = 0;
  for (int round = 1; round <= kRounds; ++round) {
    double worth = 0, sum = 0;
    std::vector<double> loads(times.size(), 0);  // of each device
    for (std::size_t l = 0; l < times[0].size(); ++l) {
      std::size_t cheapest = 0;
      for (std::size_t p = 1; p < times.size(); ++p)
        if (prices[p] * times[p][l] < prices[cheapest] * times[cheapest][l]) cheapest = p;
      sum += prices[cheapest] * times[cheapest][l];
      loads[cheapest] += times[cheapest][l] / units.pools()[cheapest].devices;
    }
    for (std::size_t p = 0; p < times.size(); ++p) worth += prices[p] * units.pools()[p].devices;
    best = std::max(best, batch * sum / worth);
    const double most = *std::max_element(loads.begin(), loads.end());
    for (std::size_t p = 0; most > 0 && p < times.size(); ++p)
      prices[p] *= std::exp(loads[p] / most / std::sqrt(round));
  }
  return Seconds(std::isfinite(best) ? best : 0);
}

}  // namespace motley::search
