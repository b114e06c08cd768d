#include "motley/search/model_stages/layer_memory.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "motley/search/model_stages/layer_holds.h"

namespace motley::search {
namespace {

/// The most of what several devices hold, each times its scale.
void take_most(const LayerHolds& holds, double scale, LayerHolds& most) {
  for (auto bytes : {&LayerHolds::fixed, &LayerHolds::kept, &LayerHolds::workspace}) {
    (most.*bytes).resize((holds.*bytes).size(), 0);
    for (std::size_t l = 0; l < (holds.*bytes).size(); ++l)
      (most.*bytes)[l] = std::max((most.*bytes)[l], scale * (holds.*bytes)[l]);
  }
}

}  // namespace

const std::vector<LayerBytes>& LayerMemory::bytes(std::size_t unit, Recompute how) const {
  const auto [known, is_new] = bytes_.try_emplace({unit, how});
  if (is_new) known->second = find(unit, how);
  return known->second;
}

std::vector<LayerBytes> LayerMemory::bytes_sharing(std::size_t unit, Recompute how) const {
  const ModelUnits& units = programs_.units();
  std::vector<LayerBytes> bytes = this->bytes(unit, how);
  const double states = plan::count_states(units.problem().recipe);
  const double parts = units.ways(unit).parameters.empty() ? 1 : units[unit].degree();
  for (std::size_t l = 0; l < bytes.size(); ++l)
    if (units[unit].is_mixed())  // whatever their parts are: beside parameters and gradients
      bytes[l].states -= Bytes(
          std::llround(0.5 * states / (states + 2) * static_cast<double>(bytes[l].states.value)));
    else
      bytes[l].states -= Bytes(std::llround(0.5 * states / parts * pieces_.parameters.bytes[l]));
  return bytes;
}

std::vector<LayerBytes> LayerMemory::find(std::size_t unit, Recompute how) const {
  const LayeredGraph& graph = programs_.graph();
  const ModelUnits& units = programs_.units();
  std::vector<LayerBytes> bytes(pieces_.size());
  const auto devices = static_cast<double>(units.ways(unit).devices.size());
  for (std::size_t l = 0; l < bytes.size(); ++l) {
    bytes[l].gradients = Bytes(std::llround(pieces_.parameters.bytes[l] / devices));
    bytes[l].output = pieces_.outputs[l];
  }
  std::vector<std::pair<double, LayerHolds>> found;  // samples
  for (const std::int64_t batch : units.simulated(unit)) {
    if (found.size() == 2) break;
    const auto program = programs_.find(unit, batch);
    if (!program) continue;
    const auto times = programs_.model().all_times(*program);
    LayerHolds most;
    for (std::size_t part = 0; part < program->devices.size(); ++part) {
      const program::DeviceProgram& device = program->devices[part];
      const std::vector<LayerPlace> places = find_layer_places(
          device, graph.whole(), pieces_.cut.pieces, graph.once(units.gathers(unit)));
      const std::vector<Bytes> scratch = times ? (*times)[part].scratch : std::vector<Bytes>();
      take_most(find_layer_holds(device, places, graph.done_again(how), pieces_.groups, scratch),
                units.scale(units[unit], units[unit].parts[part].pool), most);
    }
    found.emplace_back(static_cast<double>(batch), std::move(most));
  }
  if (found.empty()) return bytes;
  const auto& [less, small] = found.front();
  const auto& [more, large] = found.back();
  for (std::size_t piece = 0; piece < bytes.size(); ++piece) {
    const std::size_t l = pieces_.cut.stand[piece];
    const double each = less < more ? std::max(0.0, (large.kept[l] - small.kept[l]) / (more - less))
                                    : large.kept[l] / more;
    bytes[piece].kept = Bytes(std::llround(each));
    bytes[piece].states = Bytes(std::llround(large.fixed[l] + large.kept[l] - more * each));
    bytes[piece].workspace = Bytes(std::llround(large.workspace[l] / more));
  }
  return bytes;
}

}  // namespace motley::search
