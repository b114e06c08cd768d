#include "motley/search/stage_recompute.h"

#include <algorithm>
#include <utility>

namespace motley::search {
namespace {

const LayerBytes& bytes_of(const ModelStageCosts& costs, const KeptLayer& layer, Recompute how) {
  return costs.bytes_of(layer.unit, how)[layer.layer];
}

/// What their device holds that depends on what is done again.
std::int64_t held_bytes(const ModelStageCosts& costs, const std::vector<KeptLayer>& layers) {
  std::int64_t held = 0, workspace = 0;
  for (const KeptLayer& layer : layers) {
    const LayerBytes& bytes = bytes_of(costs, layer, layer.again);
    held += bytes.states.value + bytes.kept.value * layer.samples.in_flight;
    workspace = std::max(workspace, bytes.workspace.value * layer.samples.micro_batch);
  }
  return held + workspace;
}

}  // namespace

std::vector<KeptLayer> kept_layers(const PlannedStage& stage, const KeptSamples& samples,
                                   const std::vector<Recompute>& again) {
  std::vector<KeptLayer> layers;
  for (std::size_t l = stage.first; l < stage.end; ++l)
    layers.push_back({stage.unit, l, samples, again[l - stage.first]});
  return layers;
}

Bytes held_by(const ModelStageCosts& costs, const std::vector<KeptLayer>& layers) {
  return Bytes(costs.held(layers.front().unit).value + held_bytes(costs, layers));
}

bool save_memory(const ModelStageCosts& costs, Bytes lacking, std::vector<KeptLayer>& layers) {
  const std::int64_t wanted = held_bytes(costs, layers) - lacking.value;
  for (const Recompute how : {Recompute::kCheap, Recompute::kAll})
    for (KeptLayer& layer : layers) {
      const auto kept = [&](Recompute each) { return bytes_of(costs, layer, each).kept; };
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

}  // namespace motley::search
