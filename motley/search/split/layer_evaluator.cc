#include "motley/search/split/layer_evaluator.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "motley/base/text.h"
#include "motley/cost/links/collectives.h"
#include "motley/cost/profile_cost.h"

namespace motley::search {
namespace {

struct Sums {
  double pass = 0, update = 0;  // seconds
};

Sums sum_of(const std::vector<cost::LayerTime>& layers) {
  Sums sums;
  for (const cost::LayerTime& layer : layers) {
    sums.pass += layer.forward.value + layer.backward.value;
    sums.update += layer.update.value;
  }
  return sums;
}

/// Curves of a kind at the profiled micro-batches; one exchange, of all gradients, at the end.
Result<TableEvaluator::Device> price_kind(const cost::LayerProfile& profile,
                                          const std::string& kind) {
  TableEvaluator::Device device;
  Curve end;
  double update = 0;
  for (const auto& [samples, layers] : profile.times.at(kind).at(1)) {
    MOTLEY_ASSIGN(const auto times, cost::layer_times(profile, kind, 1, samples));
    const Sums sums = sum_of(times);
    end.points.emplace_back(static_cast<double>(samples), sums.pass);
    update = std::max(update, sums.update);
  }
  device.shared.ready = {end};
  device.shared.end = end;
  device.shared.update = {update};
  for (auto& [samples, seconds] : end.points) seconds += update;
  device.alone.end = std::move(end);
  MOTLEY_ASSIGN(const auto sizes, cost::layer_sizes(profile, 1));
  for (const cost::LayerSize& size : sizes) {
    device.base += size.states;
    device.per_sample += size.kept;
  }
  return device;
}

/// Seconds of the exchange of all gradients among a group.
double exchange_seconds(const cost::Network& network, const cluster::Cluster& cluster,
                        const std::vector<DeviceId>& group, double bytes) {
  const cost::Backend backend =
      cost::backend_key(cluster, group) == "nccl" ? cost::Backend::kNccl : cost::Backend::kGloo;
  return cost::best_algorithm(network, cost::even_call(cost::Collective::kAllReduce, group, bytes),
                              cost::usual_transport(backend),
                              cost::backend_algorithms(backend, cost::Collective::kAllReduce))
      .time.value;
}

}  // namespace

Result<LayerEvaluator> LayerEvaluator::make(const cost::LayerProfile& profile,
                                            const cluster::Cluster& cluster) {
  LayerEvaluator made;
  std::vector<TableEvaluator::Device> devices(cluster.devices.size());
  std::vector<std::string> known;
  for (const auto& [kind, by_degree] : profile.times)
    if (by_degree.contains(1)) known.push_back(kind);
  made.max_samples_ = std::numeric_limits<std::int64_t>::max();
  for (std::size_t i = 0; i < cluster.devices.size(); ++i) {
    const std::string& kind = cluster.devices[i].kind;
    if (std::find(known.begin(), known.end(), kind) == known.end()) continue;
    MOTLEY_ASSIGN(devices[i], price_kind(profile, kind));
    made.devices_.emplace_back(static_cast<std::int64_t>(i));
    made.max_samples_ =
        std::min(made.max_samples_, 2 * profile.times.at(kind).at(1).rbegin()->first);
  }
  if (made.devices_.empty())
    return usage_error("search.layers",
                       fmt::format("no device of the cluster is of a kind that the layer profile "
                                   "of {} has without tensor parallelism: {}",
                                   profile.model, join(known, ", ")));
  MOTLEY_ASSIGN(const auto sizes, cost::layer_sizes(profile, 1));
  double gradients = 0;
  for (const cost::LayerSize& size : sizes) gradients += static_cast<double>(size.gradients.value);
  made.network_ = std::make_shared<const cost::Network>(cluster);
  made.tables_ = std::make_shared<const TableEvaluator>(
      std::move(devices), [network = made.network_, cluster, gradients](const auto& group) {
        return GroupExchanges{{exchange_seconds(*network, cluster, group, gradients)}, 0.0};
      });
  return made;
}

}  // namespace motley::search
