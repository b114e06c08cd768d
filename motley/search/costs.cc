#include "motley/search/costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace motley::search {
namespace {

using cost::DeviceKey;
using cost::InstructionTimes;

/// The largest batch a device may get.
std::int64_t largest_batch(const graph::Graph& graph, std::int64_t global_batch) {
  return graph.sizes.empty() ? global_batch : std::min(global_batch, graph.sizes[0].max);
}

tl::unexpected<Error> not_profiled(const graph::Model& model, const DeviceKey& key,
                                   const std::string& found, std::int64_t wanted) {
  return usage_error(
      "search.missing-profile",
      fmt::format("model '{}' has {} on {} with threads = {} and PyTorch {}, wanted up to batch "
                  "{}; run `motley profile -m MODEL -C CLUSTER --global-batch {}`",
                  model.graph.name, found, key.kind, key.threads, key.torch, wanted, wanted));
}

Result<std::shared_ptr<const InstructionTimes>> load_times(
    const graph::Graph& graph, const cost::ProfileStore& store, const CostOptions& options,
    const DeviceKey& key, const std::vector<std::int64_t>& batches, int ranks) {
  std::vector<program::DeviceProgram> references;
  for (const std::int64_t batch : batches) {
    const synth::Placement placement{
        .device = key.kind, .samples = batch, .global_batch = batch * ranks, .ranks = ranks};
    MOTLEY_ASSIGN(auto reference, synth::lower_device(graph, placement, options.lowering));
    references.push_back(std::move(reference));
  }
  MOTLEY_ASSIGN(auto times, InstructionTimes::build(references, store, key));
  return std::make_shared<const InstructionTimes>(std::move(times));
}

Result<std::shared_ptr<const InstructionTimes>> load_device(const graph::Model& model,
                                                            const cost::ProfileStore& store,
                                                            const CostOptions& options,
                                                            const DeviceKey& key, int ranks) {
  const std::int64_t wanted = largest_batch(model.graph, options.global_batch);
  MOTLEY_ASSIGN(auto batches, store.batches(profile_subject(model.hash, options.lowering), key));
  std::sort(batches.begin(), batches.end());
  batches.erase(std::unique(batches.begin(), batches.end()), batches.end());
  if (batches.empty()) return not_profiled(model, key, "no profile", wanted);
  if (batches.back() < wanted) {
    return not_profiled(model, key, fmt::format("a profile up to batch {}", batches.back()),
                        wanted);
  }
  return load_times(model.graph, store, options, key, batches, ranks);
}

/// Speed at which a device works among its neighbours: emulated devices that share a machine pay
/// for it, by their own measure, a few percent.
Result<double> pace(const graph::Model& model, const cluster::Cluster& cluster,
                    const cost::ProfileStore& store, const CostOptions& options, DeviceId id,
                    const InstructionTimes& times) {
  const double speed = cluster.device(id).speed;
  if (!cost::has_pace(cluster, id)) return speed;
  const DeviceKey key = cost::emulated_key(cluster, id, options.torch);
  const std::int64_t samples = cost::usual_samples(cluster, id, options.global_batch);
  const std::string subject = profile_subject(model.hash, options.lowering);
  MOTLEY_ASSIGN(const auto step, cost::find_step(store, key, subject, samples));
  if (!step) return not_profiled(model, key, "no profile", samples);
  double seconds = 0.0;  // at full speed
  for (std::size_t i = 0; i < times.size(); ++i)
    seconds += times.at(i, static_cast<double>(step->samples)).value;
  return step->seconds.value > 0 ? seconds / step->seconds.value : speed;
}

}  // namespace

std::string profile_subject(const std::string& model_hash, const synth::LowerOptions& lowering) {
  return fmt::format("{}/{}-{}/{}-batch-norm/{}", model_hash,
                     plan::optimizer_name(lowering.optimizer.kind), lowering.optimizer.states(),
                     plan::batch_norm_name(lowering.batch_norm), lowering.bucket_bytes.value);
}

Result<Costs> load_costs(const graph::Model& model, const cluster::Cluster& cluster,
                         const cost::ProfileStore& store, const CostOptions& options) {
  Costs costs;
  std::map<std::pair<DeviceKey, int>, std::shared_ptr<const InstructionTimes>> tables;
  const auto table = [&](const DeviceKey& key, int ranks) -> Result<void> {
    auto& times = tables[{key, ranks}];
    if (times) return {};
    MOTLEY_ASSIGN(times, load_device(model, store, options, key, ranks));
    return {};
  };
  for (const DeviceId id : options.devices) {
    const cluster::Device& device = cluster.device(id);
    const DeviceKey alone = cost::device_key(device, options.torch);
    const DeviceKey shared = cost::shared_key(cluster, id, options.torch);
    MOTLEY_RETURN_IF_ERROR(table(alone, 1));
    MOTLEY_RETURN_IF_ERROR(table(shared, 2));
    cost::ProfileCost::DeviceTimes times;
    times.alone = tables[{alone, 1}];
    times.shared = tables[{shared, 2}];
    MOTLEY_ASSIGN(times.speed, pace(model, cluster, store, options, id, *times.shared));
    costs.devices.emplace(device.name, std::move(times));
  }
  MOTLEY_ASSIGN(costs.collectives, cost::CollectiveTimes::build(store));
  return costs;
}

}  // namespace motley::search
