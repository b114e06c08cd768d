#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "motley/search/stages/passes/mix.h"
#include "motley/search/stages/passes/search_space.h"
#include "motley/search/stages/passes/shape_estimates.h"
#include "motley/search/stages/passes/time_bracket.h"

namespace motley::search {

/// What a generator of mixes reads; of shapes it may learn.
struct GeneratorInput {
  const SearchSpace& space;
  ShapeEstimates& estimates;
  const TimeBracket& start;  ///< the least possible time, and prices of devices there
  const std::vector<ReplicaShape>& shapes;  ///< the columns of the bound
  const std::vector<ReplicaMix>& mixes;  ///< of the generators before it, that are not ranked yet
  const RankedMixes& ranked;             ///< of the round before
};

struct GeneratedMixes {
  std::vector<ReplicaMix> mixes;
  std::vector<ReplicaShape> turned;  ///< of single replicas that may be good interleaved
  std::int64_t programs = 0;         ///< dynamic programs over layers
};

/// Mixes of the columns that are worth most at the bound's prices of devices: by the model alone,
/// by what simulations say of them, the same of those whose last collective is no longer than that
/// of some mix, and of those whose stages have one degree: collectives go at the rate of the
/// narrowest unit that holds a layer.
Result<GeneratedMixes> mix_by_model(const GeneratorInput& input);
Result<GeneratedMixes> mix_by_simulation(const GeneratorInput& input);
Result<GeneratedMixes> mix_by_exchange(const GeneratorInput& input);
Result<GeneratedMixes> mix_by_degree(const GeneratorInput& input);

/// One replica does all: it exchanges nothing, so it also serves where devices cannot reach each
/// other, and fractions of replicas, by which columns are found, do not show it. For some numbers
/// of stages, as the model thinks too well of many, the fastest shape within the devices.
Result<GeneratedMixes> put_alone(const GeneratorInput& input);

/// Pools apart, for few devices: in each as many replicas as it has devices for, all of the shape
/// that does most there. No price of devices shows that, where fractions of other shapes are worth
/// more.
Result<GeneratedMixes> put_apart(const GeneratorInput& input);

/// Mixes of replicas that are all cut at the same layers, as the shapes of the ranked mixes are, or
/// evenly: what each has of a layer is summed in one go, where replicas that are cut differently
/// have many sums, one after the other.
Result<GeneratedMixes> align_cuts(const GeneratorInput& input);

struct Generator {
  std::string_view name;
  Result<GeneratedMixes> (*generate)(const GeneratorInput& input);
};
/// In the order in which they run. Those of the second round see what the first one ranked.
inline constexpr Generator kGenerators[] = {
    {"model", mix_by_model},       {"simulation", mix_by_simulation},
    {"exchange", mix_by_exchange}, {"degree", mix_by_degree},
    {"alone", put_alone},          {"apart", put_apart}};
inline constexpr Generator kSecondGenerators[] = {{"aligned", align_cuts}};

}  // namespace motley::search
