// Pipelines with layers even by count and stages of one kind.
#include <algorithm>

#include "motley/search/stages/costs/merged_layers.h"
#include "peers/spaces/restricted_search.h"

namespace motley::peers {
namespace {

/// Even pipelines of one kind of unit, and how many fit in its pool.
struct UniformChoice {
  search::ReplicaShape shape;
  std::size_t pool;
  int replicas;
};

search::ReplicaShape even_shape(const search::StageCosts& costs, std::size_t count,
                                std::size_t unit, std::int64_t micro) {
  const search::MergedLayers even = search::MergedLayers::even(costs, count);
  search::ReplicaShape shape{{}, micro};
  for (std::size_t s = 0; s < count; ++s)
    shape.stages.push_back({even.cut(s), even.cut(s + 1), unit});
  return shape;
}

int fitting_replicas(const search::StageCosts& costs, std::size_t count, std::size_t unit) {
  const search::StageUnit& of = costs.units()[unit];
  return costs.pools()[of.pool()].devices / (of.degree() * static_cast<int>(count));
}

search::StageReplica to_replica(const search::ReplicaShape& shape, std::int64_t samples) {
  search::StageReplica replica{{}, shape.micro_batch, samples};
  for (const auto& [first, end, unit] : shape.stages) replica.stages.push_back({first, end, unit});
  return replica;
}

/// Removes samples beyond the batch, one micro-batch at a time, from the last replica that can
/// spare it. If none can, the largest micro-batches shrink.
void take_excess(std::int64_t excess, const search::StageCosts& costs, search::StagePlan& plan) {
  while (excess > 0) {
    const auto at = std::find_if(plan.replicas.rbegin(), plan.replicas.rend(), [&](auto& replica) {
      const std::int64_t after = replica.samples - std::min(excess, replica.micro_batch);
      if (after < 0 || !RestrictedSearch::divides(after, replica.micro_batch)) return false;
      excess -= replica.samples - after;
      replica.samples = after;
      return true;
    });
    if (at != plan.replicas.rend()) continue;
    std::int64_t largest = 1;
    for (const search::StageReplica& replica : plan.replicas)
      largest = std::max(largest, replica.micro_batch);
    const std::vector<std::int64_t>& sizes = costs.micro_batches();
    const auto known = std::lower_bound(sizes.begin(), sizes.end(), largest);
    if (known == sizes.begin()) return;
    for (search::StageReplica& replica : plan.replicas)
      if (replica.micro_batch == largest) replica.micro_batch = *std::prev(known);
  }
}

std::vector<UniformChoice> uniform_choices(const RestrictedSearch& search,
                                           const search::ShapeSearch& shapes) {
  const search::StageCosts& costs = search.costs();
  std::vector<UniformChoice> choices;
  for (std::size_t unit = 0; unit < costs.units().size(); ++unit)
    for (const std::int64_t micro : costs.micro_batches())
      for (std::size_t count = 1; count <= search.most_stages(); ++count) {
        const int fits = fitting_replicas(costs, count, unit);
        if (costs.units()[unit].recomputes || fits == 0 || !costs.knows(unit, micro)) continue;
        UniformChoice choice{even_shape(costs, count, unit, micro), costs.units()[unit].pool(),
                             fits};
        if (shapes.is_valid(choice.shape)) choices.push_back(std::move(choice));
      }
  return choices;
}

}  // namespace

void search_equal(RestrictedSearch& search) {
  const search::StageCosts& costs = search.costs();
  for (const std::int64_t micro : costs.micro_batches())
    for (std::size_t count = 1; count <= search.most_stages(); ++count)
      for (const int degree : search.degrees())
        for (std::size_t way = 0; way < search.ways(degree); ++way) {
          search::StagePlan plan;
          for (std::size_t pool = 0; pool < costs.pools().size(); ++pool) {
            const auto unit = search.unit(pool, degree, way);
            if (!unit || !costs.knows(*unit, micro)) continue;
            plan.replicas.insert(plan.replicas.end(),
                                 static_cast<std::size_t>(fitting_replicas(costs, count, *unit)),
                                 to_replica(even_shape(costs, count, *unit, micro), 0));
          }
          if (plan.replicas.empty()) continue;
          const auto samples = search.even_samples(plan.replicas.size());
          for (std::size_t r = 0; r < samples.size(); ++r) plan.replicas[r].samples = samples[r];
          search.offer(std::move(plan));
        }
}

void search_uniform(RestrictedSearch& search) {
  const search::StageCosts& costs = search.costs();
  const search::ShapeSearch shapes(search.sums(), {2.0});
  const std::vector<UniformChoice> choices = uniform_choices(search, shapes);
  if (choices.empty()) return;
  std::vector<const UniformChoice*> best(costs.pools().size());
  const auto samples_in = [&](double seconds) {
    std::vector<std::int64_t> most(costs.pools().size(), 0);
    std::fill(best.begin(), best.end(), nullptr);
    for (const UniformChoice& choice : choices) {
      const std::int64_t does =
          choice.replicas * shapes.most_samples(choice.shape, seconds, search.batch());
      if (does <= most[choice.pool]) continue;
      most[choice.pool] = does;
      best[choice.pool] = &choice;
    }
    std::int64_t sum = 0;
    for (const std::int64_t each : most) sum += each;
    return sum;
  };
  double below = 1e-6, above = 1e-6;
  while (samples_in(above) < search.batch()) above *= 2;
  for (int i = 0; i < 20; ++i) {
    const double middle = (below + above) / 2;
    (samples_in(middle) < search.batch() ? below : above) = middle;
  }
  samples_in(above);
  search::StagePlan plan;
  std::int64_t excess = -search.batch();
  for (const UniformChoice* choice : best) {
    if (choice == nullptr) continue;
    const std::int64_t does = shapes.most_samples(choice->shape, above, search.batch());
    plan.replicas.insert(plan.replicas.end(), static_cast<std::size_t>(choice->replicas),
                         to_replica(choice->shape, does));
    excess += choice->replicas * does;
  }
  take_excess(excess, costs, plan);
  search.offer(std::move(plan));
}

}  // namespace motley::peers
