#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "motley/search/model_stages/model_stage_costs.h"
#include "motley/search/stages/stage_evaluator.h"

namespace motley::search {

/// Samples that a stage keeps, in total and per micro-batch.
struct KeptSamples {
  std::int64_t in_flight = 1, micro_batch = 1;
};

/// A layer of a stage, or its pieces [first, end), and how much of its forward is recomputed.
struct KeptLayer {
  std::size_t unit = 0, first = 0, end = 0;
  KeptSamples samples;
  Recompute again = Recompute::kNothing;
};
/// Returns a stage's layers; `again`: by layer (FinerLayers::parts).
std::vector<KeptLayer> kept_layers(const ModelStageCosts& costs, const PlannedStage& stage,
                                   const KeptSamples& samples, const std::vector<Recompute>& again);

/// Returns the bytes held by each device for these layers, including PyTorch's own. Here and below,
/// `layers` are all layers of a device, of one or several stages.
Bytes held_by(const ModelStageCosts& costs, const std::vector<KeptLayer>& layers);

/// Recomputes more until each device holds `lacking` bytes less by its layers' bytes: layer by
/// layer the cheap operators, then all. Returns false if that is not enough; then everything that
/// saves memory is recomputed.
bool save_memory(const ModelStageCosts& costs, Bytes lacking, std::vector<KeptLayer>& layers);

/// Recomputes less, layer by layer from the first recomputed one, `all` before `cheap`, while each
/// device needs at most `spare` more bytes by its layers' bytes. Returns whether anything changed.
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
