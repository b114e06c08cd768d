#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "motley/search/model_stages/model_stage_costs.h"
#include "motley/search/stages/stage_evaluator.h"

namespace motley::search {

/// What a stage keeps: of how many samples, and of how many in each micro-batch.
struct KeptSamples {
  std::int64_t in_flight = 1, micro_batch = 1;
};

/// A layer of a stage, or the pieces [first, end) of one that the stage has, and how much of its
/// forward pass is done again.
struct KeptLayer {
  std::size_t unit = 0, first = 0, end = 0;
  KeptSamples samples;
  Recompute again = Recompute::kNothing;
};
/// Those of a stage; `again`: by them (FinerLayers::parts).
std::vector<KeptLayer> kept_layers(const ModelStageCosts& costs, const PlannedStage& stage,
                                   const KeptSamples& samples, const std::vector<Recompute>& again);

/// What each device holds of these layers, by their bytes, with what PyTorch itself does. Here and
/// below: all layers that a device has, of one stage or several.
Bytes held_by(const ModelStageCosts& costs, const std::vector<KeptLayer>& layers);

/// Lets more of the layers be done again until each of their devices holds `lacking` bytes less, by
/// its layers' bytes: layer after layer what is cheap, then all. False if that is not enough; then
/// all is done again that saves anything.
bool save_memory(const ModelStageCosts& costs, Bytes lacking, std::vector<KeptLayer>& layers);

/// Lets less of them be done again, layer after layer from the first that is, all before what is
/// cheap, as long as each of their devices holds at most `spare` bytes more by its layers' bytes.
/// Is anything less?
bool use_memory(const ModelStageCosts& costs, Bytes spare, std::vector<KeptLayer>& layers);

/// How much of each layer is recomputed: by replica, stage and its layers (FinerLayers::parts).
using Again = std::vector<std::vector<std::vector<Recompute>>>;

/// All stages of some devices.
struct StageSeat {
  const StageReplica& replica;
  const PlannedStage& stage;      ///< the first of them
  std::vector<KeptLayer> layers;  ///< of all; what is recomputed of them may be changed
};
/// Visits the devices of each stage or stages, in the order of a plan's ranks, until `visit` is
/// false. Was it never?
bool for_each_seat(const ModelStageCosts& costs, const PricedStagePlan& found, Again& again,
                   const std::function<bool(StageSeat&)>& visit);

/// By seat, what its devices do in a step, what they recompute included.
std::vector<double> find_busy(const ModelStageCosts& costs, const PricedStagePlan& found,
                              Again& again);

}  // namespace motley::search
