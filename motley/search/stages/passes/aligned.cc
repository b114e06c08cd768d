#include <algorithm>
#include <set>
#include <utility>

#include "motley/search/stages/costs/merged_layers.h"
#include "motley/search/stages/passes/whole_mixes.h"

namespace motley::search {
namespace {

/// Times the least possible time at which aligned mixes are put together.
constexpr double kAlignedTimes[] = {1.0, 1.15};
constexpr std::size_t kMostEven = 16;           // even cuts: into 1 to so many stages
constexpr std::size_t kMostAligned = 12;        // cuts that are taken of ranked mixes
constexpr std::size_t kMostAlignedOffers = 16;  // shapes of equal cuts that are put together

using Cuts = std::vector<std::size_t>;  // where stages end

Cuts cuts_of(const ReplicaShape& shape) {
  Cuts cuts;
  for (const ShapeStage& stage : shape.stages) cuts.push_back(stage.end);
  return cuts;
}

/// The columns that are cut so, and one of each unit and micro-batch.
std::vector<ReplicaShape> find_shapes(const GeneratorInput& input, const Cuts& cuts) {
  const SearchSpace& space = input.space;
  std::vector<ReplicaShape> shapes;
  for (const ReplicaShape& shape : input.shapes)
    if (cuts_of(shape) == cuts) shapes.push_back(shape);
  for (const std::int64_t micro : space.costs.micro_batches())
    for (std::size_t unit = 0; unit < space.costs.units().size(); ++unit) {
      ReplicaShape shape{{}, micro};
      std::size_t first = 0;
      for (const std::size_t end : cuts)
        shape.stages.push_back({std::exchange(first, end), end, unit});
      if (space.ringed.is_valid(shape) && space.fits_devices(shape))
        shapes.push_back(std::move(shape));
    }
  return shapes;
}

}  // namespace

Result<GeneratedMixes> align_cuts(const GeneratorInput& input) {
  const StageCosts& costs = input.space.costs;
  std::set<Cuts> known;
  std::vector<Cuts> all;
  const auto add = [&](Cuts cuts) {
    if (known.insert(cuts).second) all.push_back(std::move(cuts));
  };
  for (std::size_t stages = 1; stages <= std::min(costs.layers(), kMostEven); ++stages) {
    const MergedLayers even = MergedLayers::balanced(costs, stages);
    Cuts cuts;
    for (std::size_t s = 1; s <= stages; ++s) cuts.push_back(even.cut(s));
    add(std::move(cuts));
  }
  for (const RankedMix& ranked : input.ranked)
    for (const auto& [shape, count] : ranked.mix.parts)
      if (known.size() < kMostEven + kMostAligned) add(cuts_of(shape));
  GeneratedMixes made;
  for (const Cuts& cuts : all) {
    const std::vector<ReplicaShape> shapes = find_shapes(input, cuts);
    for (const double times : kAlignedTimes)
      MOTLEY_RETURN_IF_ERROR(add_mix(
          input, shapes,
          {.seconds = times * input.start.possible, .most_offers = kMostAlignedOffers}, made));
  }
  return made;
}

}  // namespace motley::search
