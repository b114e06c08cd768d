#include "motley/search/stages/passes/search_space.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace motley::search {
namespace {

/// Devices of which all plans are tried or ruled out within a second or so.
constexpr int kProvedDevices = 8;

std::vector<ReplicaClass> find_classes(const StageCosts& costs) {
  std::map<int, int> of_host;  // devices
  int all = 0;
  for (const DevicePool& pool : costs.pools()) {
    all += pool.devices;
    for (int host = 0; host < pool.hosts(); ++host)
      of_host[pool.first_host + host] += pool.per_host;
  }
  int widest = 1;
  for (const auto& [host, devices] : of_host) widest = std::max(widest, devices);
  std::vector<ReplicaClass> classes = {{static_cast<double>(widest), 0}};
  for (int times = 1; widest * times < all; times *= 2) {
    const double fewest = widest * times + 1;
    classes.push_back({times < 4 ? 2.0 * widest * times : all, 2 * (fewest - 1) / fewest});
    if (times == 4) break;
  }
  classes.back().most = all;
  return classes;
}

}  // namespace

SearchSpace::SearchSpace(const StageQuestion& of)
    : question(of),
      costs(*of.costs),
      sums(costs),
      classes(find_classes(costs)),
      free(sums, {}, of.limits),
      ringed(sums, {classes.back().rounds}, of.limits),
      evaluator(sums) {
  for (const DevicePool& pool : costs.pools()) devices.push_back(pool.devices);
}

bool SearchSpace::runs(std::string_view pass) const {
  return std::find(question.without.begin(), question.without.end(), pass) ==
         question.without.end();
}

bool SearchSpace::has_shape() const {
  const std::vector<double> ones(devices.size(), 1.0);
  return std::any_of(
      costs.micro_batches().begin(), costs.micro_batches().end(), [&](std::int64_t batch) {
        return batch <= question.global_batch && free.cheapest({1e15, batch, batch, ones, 0});
      });
}

bool SearchSpace::has_few_devices() const {
  const ShapeLimits& limits = question.limits;
  return std::accumulate(devices.begin(), devices.end(), 0) <= kProvedDevices &&
         !limits.one_layer_stages && limits.mix == UnitMix::kAll &&
         limits.most_stages >= costs.layers();
}

bool SearchSpace::can_interleave() const {
  return question.interleaves && !costs.messages_block() && costs.layers() > 2 &&
         std::accumulate(devices.begin(), devices.end(), 0) > 1;
}

bool SearchSpace::fits_devices(const ReplicaShape& shape) const {
  const std::vector<int> used = free.devices(shape);
  for (std::size_t pool = 0; pool < used.size(); ++pool)
    if (used[pool] > devices[pool]) return false;
  return true;
}

int SearchSpace::fills_host(const ReplicaShape& shape) const {
  const StageUnit& unit = costs.units()[shape.stages.front().unit];
  int fill = costs.pools()[unit.pool()].per_host;
  for (const UnitPart& part : unit.parts)
    fill = std::min(fill, costs.pools()[part.pool].per_host / part.devices);
  return std::max(1, fill);
}

}  // namespace motley::search
