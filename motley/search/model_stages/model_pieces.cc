#include "motley/search/model_stages/model_pieces.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace motley::search {
namespace {

/// A pass through all layers has about so many pieces of the same time: enough that a cut is at
/// most 1 % of it from where it is best.
constexpr double kPieces = 128;
/// The micro-batch at which they are timed, the fourth: below it launches are most of the time.
constexpr std::size_t kPiecesBatch = 3;

/// By operator of the whole graph; 0 where there are no times.
std::vector<double> time_operators(const UnitPrograms& programs) {
  const ModelUnits& units = programs.units();
  std::vector<double> seconds(programs.graph().whole().ops.size(), 0);
  const std::vector<std::int64_t>& batches = units.micro_batches();
  for (std::size_t unit = 0; unit < units.size() && !batches.empty(); ++unit) {
    if (units[unit].degree() > 1) continue;
    const auto program = programs.find(unit, batches[std::min(kPiecesBatch, batches.size() - 1)]);
    if (!program) continue;
    const auto times = programs.model().all_times(*program);
    if (!times) continue;
    const program::DeviceProgram& device = program->devices[0];
    for (std::size_t i = 0; i < device.instructions.size(); ++i)
      if (const OpId op = device.instructions[i].origin; !op.is_none())
        seconds[op.index()] += times->front().seconds[i].value;
    break;
  }
  return seconds;
}

}  // namespace

ModelPieces find_model_pieces(const UnitPrograms& programs) {
  const graph::Graph& graph = programs.graph().whole();
  const graph::LayerChain& chain = programs.graph().chain();
  const graph::ShortGraph& shown = programs.graph().shown();
  std::vector<double> seconds = time_operators(programs);
  double all = 0;
  for (const OpId op : shown.of_op) all += seconds[shown.whole_op[op.index()].index()];
  const std::int64_t least = std::max<std::int64_t>(1, programs.units().problem().min_samples);
  ModelPieces pieces;
  pieces.cut = find_finer_layers(
      {graph, chain, shown, std::move(seconds), std::max(all, 1e-9) / kPieces, least});
  pieces.parameters = find_layer_parameters(graph, pieces.cut.pieces);
  pieces.outputs = find_layer_outputs(graph, pieces.cut.pieces, least);
  for (std::size_t l = 0; l < chain.names.size(); ++l)
    pieces.groups.resize(pieces.cut.first[l + 1], l);
  return pieces;
}

}  // namespace motley::search
