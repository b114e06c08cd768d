#include "motley/search/model_stages/stage_recompute.h"

#include <algorithm>
#include <map>
#include <utility>

namespace motley::search {
namespace {

std::int64_t kept_bytes(const ModelStageCosts& costs, const KeptLayer& layer, Recompute how) {
  const std::vector<LayerBytes>& bytes = costs.layer_memory().bytes(layer.unit, how);
  std::int64_t kept = 0;
  for (std::size_t p = layer.first; p < layer.end; ++p) kept += bytes[p].kept.value;
  return kept;
}

/// Returns the bytes on their device that depend on recomputation.
std::int64_t held_bytes(const ModelStageCosts& costs, const std::vector<KeptLayer>& layers) {
  std::int64_t held = 0, workspace = 0;
  for (const KeptLayer& layer : layers) {
    const std::vector<LayerBytes>& bytes = costs.layer_memory().bytes(layer.unit, layer.again);
    for (std::size_t p = layer.first; p < layer.end; ++p) {
      held += bytes[p].states.value + bytes[p].kept.value * layer.samples.in_flight;
      workspace = std::max(workspace, bytes[p].workspace.value * layer.samples.micro_batch);
    }
  }
  return held + workspace;
}

}  // namespace

std::vector<KeptLayer> kept_layers(const ModelStageCosts& costs, const PlannedStage& stage,
                                   const KeptSamples& samples,
                                   const std::vector<Recompute>& again) {
  std::vector<KeptLayer> layers;
  for (const auto& [first, end] : costs.pieces().parts(stage.first, stage.end))
    layers.push_back({stage.unit, first, end, samples, again[layers.size()]});
  return layers;
}

Bytes held_by(const ModelStageCosts& costs, const std::vector<KeptLayer>& layers) {
  return Bytes(costs.held(layers.front().unit).value + held_bytes(costs, layers));
}

bool save_memory(const ModelStageCosts& costs, Bytes lacking, std::vector<KeptLayer>& layers) {
  const std::int64_t wanted = held_bytes(costs, layers) - lacking.value;
  for (const Recompute how : {Recompute::kCheap, Recompute::kAll})
    for (KeptLayer& layer : layers) {
      const auto kept = [&](Recompute each) { return kept_bytes(costs, layer, each); };
      if (layer.again >= how || kept(how) >= kept(layer.again)) continue;
      layer.again = how;
      if (held_bytes(costs, layers) <= wanted) return true;
    }
  return false;
}

bool use_memory(const ModelStageCosts& costs, Bytes spare, std::vector<KeptLayer>& layers) {
  const std::int64_t most = held_bytes(costs, layers) + spare.value;
  bool is_less = false;
  for (const Recompute how : {Recompute::kAll, Recompute::kCheap})
    for (KeptLayer& layer : layers) {
      if (layer.again != how) continue;
      for (const Recompute less : {Recompute::kNothing, Recompute::kCheap}) {
        if (less >= how) continue;
        const Recompute before = std::exchange(layer.again, less);
        if (held_bytes(costs, layers) <= most) {
          is_less = true;
          break;
        }
        layer.again = before;
      }
    }
  return is_less;
}

bool for_each_seat(const ModelStageCosts& costs, const PricedStagePlan& found, Again& again,
                   const std::function<bool(StageSeat&)>& visit) {
  for (std::size_t r = 0; r < found.plan.replicas.size(); ++r) {
    const StageReplica& replica = found.plan.replicas[r];
    for (const std::vector<std::size_t>& stages : stages_by_seat(replica)) {
      StageSeat at{replica, replica.stages[stages.front()], {}};
      for (const std::size_t s : stages) {
        const KeptSamples samples{found.price.spans[r][s].in_flight * replica.micro_batch,
                                  replica.micro_batch};
        const auto layers = kept_layers(costs, replica.stages[s], samples, again[r][s]);
        at.layers.insert(at.layers.end(), layers.begin(), layers.end());
      }
      const bool goes_on = visit(at);
      auto layer = at.layers.begin();
      for (const std::size_t s : stages)
        for (Recompute& how : again[r][s]) how = (layer++)->again;
      if (!goes_on) return false;
    }
  }
  return true;
}

std::vector<double> find_busy(const ModelStageCosts& costs, const PricedStagePlan& found,
                              Again& again) {
  std::vector<double> busy;
  for_each_seat(costs, found, again, [&](const StageSeat& at) {
    double pass = 0;
    for (const Recompute how : kRecomputes)
      for (const KeptLayer& layer : at.layers) {
        if (layer.again != how) continue;
        const auto& work = costs.times().work(layer.unit, at.replica.micro_batch, how);
        for (std::size_t p = layer.first; p < layer.end; ++p)
          pass += (work[p].forward + work[p].backward).value;
      }
    busy.push_back(pass * static_cast<double>(at.replica.samples) /
                   static_cast<double>(at.replica.micro_batch));
    return true;
  });
  return busy;
}

}  // namespace motley::search
