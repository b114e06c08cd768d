#include "motley/search/layers/layer_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <string>

#include "motley/base/text.h"
#include "motley/cost/layers/profiled_layers.h"

namespace motley::search {
namespace {

/// Returns the kind's times of whole layers, or null.
const cost::LayerTable* find_whole(const cost::LayerProfile& profile, const std::string& kind) {
  const auto degrees = profile.times.find(kind);
  if (degrees == profile.times.end()) return nullptr;
  const auto whole = degrees->second.find(1);
  return whole == degrees->second.end() || whole->second.empty() ? nullptr : &whole->second;
}

Result<cost::ProfileCost::DeviceTimes> kind_times(const LayerModel& model,
                                                  const CostOptions& options,
                                                  EqualPrograms& programs,
                                                  const std::string& kind) {
  std::vector<std::int64_t> batches;
  for (const auto& [samples, layers] : *find_whole(*model.profile, kind))
    batches.push_back(samples);
  const auto source =
      std::make_shared<cost::ProfiledLayers>(model.profile, model.layers.rows, kind);
  const int sharing = synth::replicas_that_share(model.layers.graph, options.lowering.batch_norm);
  cost::ProfileCost::DeviceTimes times;
  for (const auto& [ranks, setting] : {std::pair(1, &times.alone), {sharing, &times.shared}}) {
    MOTLEY_ASSIGN(const auto references,
                  programs.find(model.layers.graph, batches, ranks, options.lowering));
    MOTLEY_ASSIGN(auto table, cost::InstructionTimes::build(*references, *source, {.kind = kind}));
    *setting = {std::make_shared<const cost::InstructionTimes>(std::move(table)), source, source};
  }
  return times;
}

}  // namespace

Result<LayerDevices> find_layer_devices(const cost::LayerProfile& profile,
                                        const cluster::Cluster& cluster,
                                        const std::vector<DeviceId>& allowed) {
  LayerDevices found{{}, std::numeric_limits<std::int64_t>::max()};
  for (const DeviceId id : allowed) {
    const cost::LayerTable* whole = find_whole(profile, cluster.device(id).kind);
    if (whole == nullptr) continue;
    found.devices.push_back(id);
    found.most_samples = std::min(found.most_samples, 2 * whole->rbegin()->first);
  }
  if (!found.devices.empty()) return found;
  std::vector<std::string> known;
  for (const auto& [kind, degrees] : profile.times)
    if (degrees.contains(1)) known.push_back(kind);
  return usage_error("search.layers",
                     fmt::format("no device of the cluster is of a kind that the layer profile of "
                                 "{} has without tensor parallelism: {}",
                                 profile.model, join(known, ", ")));
}

Result<Costs> load_layer_costs(const LayerModel& model, const cluster::Cluster& cluster,
                               const CostOptions& options) {
  Costs costs;
  costs.programs = options.programs ? options.programs : std::make_shared<EqualPrograms>();
  std::map<std::string, cost::ProfileCost::DeviceTimes> kinds;
  for (const DeviceId id : options.devices) {
    const cluster::Device& device = cluster.device(id);
    const auto [known, is_new] = kinds.try_emplace(device.kind);
    if (is_new) {
      MOTLEY_ASSIGN(known->second, kind_times(model, options, *costs.programs, device.kind));
    }
    cost::ProfileCost::DeviceTimes times = known->second;
    times.pace = cost::Pace(device.speed);
    costs.full_speed[device.name] = times.shared.table;
    costs.devices.emplace(device.name, std::move(times));
    costs.grounds[device.name].text = "layers that another tool timed";
  }
  return costs;
}

}  // namespace motley::search
