#pragma once

#include <cstddef>
#include <vector>

#include "motley/search/stages/passes/generators.h"
#include "motley/search/stages/shapes/whole_replicas.h"

namespace motley::search {

enum class SamplesBy { kModel, kSimulation };

/// Which shapes are put together, and by what they do.
struct MixQuestion {
  double seconds = 0;  ///< in which the batch is to be done
  SamplesBy by = SamplesBy::kSimulation;
  std::size_t most_offers = 64;  ///< of the shapes, those that are worth most
  double most_after = kTooLong;  ///< seconds that may follow the passes of a replica
};

/// Adds the mix of these shapes, in whole numbers within the devices, that does most in the time;
/// by simulation a mix of bundles, too.
Result<void> add_mix(const GeneratorInput& input, const std::vector<ReplicaShape>& from,
                     const MixQuestion& question, GeneratedMixes& made);

/// Adds the mix of so many of each shape, unless it is known.
void add_counts(const GeneratorInput& input, const std::vector<ReplicaShape>& shapes,
                const std::vector<int>& counts, GeneratedMixes& made);

/// Chooses as many replicas at once as their first stages fill a host, of two shapes at most: what
/// is summed last then goes through hosts in which all devices take part. Returns the number of
/// each shape.
std::vector<int> choose_bundles(const SearchSpace& space, const std::vector<ReplicaShape>& shapes,
                                const std::vector<ShapeOffer>& offers);

}  // namespace motley::search
