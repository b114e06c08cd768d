#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "motley/search/stages/passes/generators.h"
#include "motley/search/stages/shapes/fastest_shape.h"

namespace motley::search {
namespace {

/// Most stages of the replicas that are looked for where they are not found exactly.
constexpr std::size_t kMostStages[] = {1, 2, 4, 8};
constexpr std::size_t kLeastUse = 4;  // one of how many devices such a replica has to use
/// Ratios of a known time to the next that is tried: long steps first, then short ones.
constexpr double kLessTime[] = {1.2, 1.02};
constexpr double kSlowest = 1.5;  // times the fastest column, of a replica that is worth finding
constexpr double kHeavyMessages = 4;  // times what messages take, for pipelines that wait for them
/// Of a pass, what fills an interleaved pipeline until the next stage can begin.
constexpr double kTurnedFill = 0.3;

/// Finds a replica that does all samples in a time, within the devices: devices of which the
/// cheapest has too many get dearer until it has not. May miss some.
std::optional<ReplicaShape> find_alone(const GeneratorInput& input, const ShapeSearch& search,
                                       double seconds, std::int64_t micro_batch,
                                       std::int64_t& programs) {
  constexpr int kRounds = 8;
  constexpr double kDearer = 1.5;
  const SearchSpace& space = input.space;
  std::vector<double> prices;
  for (const int devices : space.devices) prices.push_back(1.0 / devices);
  for (int round = 0; round < kRounds; ++round) {
    ++programs;
    const auto found = search.cheapest({seconds, space.question.global_batch, micro_batch, prices});
    if (!found) return std::nullopt;
    if (space.fits_devices(found->shape)) return found->shape;
    const std::vector<int> devices = space.free.devices(found->shape);
    for (std::size_t pool = 0; pool < prices.size(); ++pool)
      if (devices[pool] > space.devices[pool]) prices[pool] *= kDearer;
  }
  return std::nullopt;
}

/// The fastest replica of so many stages among those offered.
struct FastestAlone {
  const SearchSpace& space;
  std::size_t most_stages;
  std::optional<ReplicaShape> best = {};
  double seconds = INFINITY;

  /// False if the shape is none.
  bool offer(const ReplicaShape& shape) {
    if (shape.stages.size() > most_stages || !space.fits_devices(shape)) return false;
    const double takes = space.free.seconds(shape, space.question.global_batch);
    if (takes < seconds) {
      seconds = takes;
      best = shape;
    }
    return true;
  }
};

/// Finds exactly, of each number of stages and micro-batch, the fastest shape; and that where
/// messages weigh more than the model thinks, to which they are as nothing once the pipeline is
/// full.
GeneratedMixes find_fastest(const SearchSpace& space, double seconds) {
  GeneratedMixes made;
  const FastestShape search(space.free);
  std::set<ReplicaShape> added;
  for (const std::int64_t batch : space.costs.micro_batches()) {
    if (batch > space.question.global_batch) break;
    FastestShape::Question question{space.question.global_batch, batch, seconds,
                                    space.question.limits.most_stages};
    ++made.programs;
    for (const double weight : {1.0, kHeavyMessages}) {
      question.message_weight = weight;
      for (const auto& [stages, shape] : search.find(question))
        if (added.insert(shape).second) made.mixes.push_back({{{shape, 1}}});
    }
    if (!space.can_interleave()) continue;
    ++made.programs;
    question.message_weight = 1;
    question.fill_weight = kTurnedFill;
    for (const auto& [stages, shape] : search.find(question))
      if (stages > 1 && added.insert(shape).second) made.turned.push_back(shape);
  }
  return made;
}

}  // namespace

Result<GeneratedMixes> put_alone(const GeneratorInput& input) {
  const SearchSpace& space = input.space;
  FastestAlone known{space, space.costs.layers()};
  for (const ReplicaShape& shape : input.shapes) known.offer(shape);
  const double most = kSlowest * known.seconds;
  if (FastestShape::can_search(space.costs.pools())) return find_fastest(space, most);
  std::size_t devices = 0, widest = 1;
  for (const int of_pool : space.devices) devices += static_cast<std::size_t>(of_pool);
  for (const StageUnit& unit : space.costs.units())
    widest = std::max(widest, static_cast<std::size_t>(unit.degree()));
  GeneratedMixes made;
  std::set<ReplicaShape> added;
  for (const std::size_t stages : kMostStages) {
    if (stages * widest * kLeastUse < devices) continue;
    ShapeLimits limits = space.question.limits;
    limits.most_stages = std::min(limits.most_stages, stages);
    const ShapeSearch search(space.sums, {}, limits);
    FastestAlone fastest{space, stages};
    for (const ReplicaShape& shape : input.shapes) fastest.offer(shape);
    for (const std::int64_t batch : space.costs.micro_batches())
      for (const double less : kLessTime)
        while (true) {
          const double tried = std::min(fastest.seconds, most) / less;
          const auto shape = find_alone(input, search, tried, batch, made.programs);
          if (!shape || !fastest.offer(*shape)) break;
        }
    if (fastest.best && added.insert(*fastest.best).second)
      made.mixes.push_back({{{*fastest.best, 1}}});
  }
  return made;
}

}  // namespace motley::search
