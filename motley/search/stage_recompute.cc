#include "motley/search/stage_recompute.h"

#include <algorithm>
#include <utility>

namespace motley::search {
namespace {

/// What a device of the stage holds that depends on what is done again.
std::int64_t held_bytes(const ModelStageCosts& costs, const PlannedStage& stage,
                        const KeptSamples& samples, const std::vector<Recompute>& again) {
  std::int64_t held = 0, workspace = 0;
  for (std::size_t l = 0; l < again.size(); ++l) {
    const LayerBytes& layer = costs.bytes_of(stage.unit, again[l])[stage.first + l];
    held += layer.states.value + layer.kept.value * samples.in_flight;
    workspace = std::max(workspace, layer.workspace.value * samples.micro_batch);
  }
  return held + workspace;
}

}  // namespace

Bytes held_by(const ModelStageCosts& costs, const PlannedStage& stage, const KeptSamples& samples,
              const std::vector<Recompute>& again) {
  return Bytes(costs.held(stage.unit).value + held_bytes(costs, stage, samples, again));
}

bool save_memory(const ModelStageCosts& costs, const PlannedStage& stage,
                 const KeptSamples& samples, Bytes lacking, std::vector<Recompute>& again) {
  const std::int64_t wanted = held_bytes(costs, stage, samples, again) - lacking.value;
  for (const Recompute how : {Recompute::kCheap, Recompute::kAll})
    for (std::size_t l = 0; l < again.size(); ++l) {
      const auto kept = [&](Recompute each) {
        return costs.bytes_of(stage.unit, each)[stage.first + l].kept;
      };
      if (again[l] >= how || kept(how) >= kept(again[l])) continue;
      again[l] = how;
      if (held_bytes(costs, stage, samples, again) <= wanted) return true;
    }
  return false;
}

bool use_memory(const ModelStageCosts& costs, const PlannedStage& stage, const KeptSamples& samples,
                Bytes spare, std::vector<Recompute>& again) {
  const std::int64_t most = held_bytes(costs, stage, samples, again) + spare.value;
  bool is_less = false;
  for (const Recompute how : {Recompute::kAll, Recompute::kCheap})
    for (Recompute& layer : again) {
      if (layer != how) continue;
      for (const Recompute less : {Recompute::kNothing, Recompute::kCheap}) {
        if (less >= how) continue;
        const Recompute before = std::exchange(layer, less);
        if (held_bytes(costs, stage, samples, again) <= most) {
          is_less = true;
          break;
        }
        layer = before;
      }
    }
  return is_less;
}

}  // namespace motley::search
