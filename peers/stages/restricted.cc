#include "peers/stages/restricted.h"

#include <algorithm>
#include <cmath>

#include "motley/search/stages/merged_layers.h"
#include "motley/search/stages/packing_lp.h"
#include "motley/search/stages/whole_replicas.h"

namespace motley::peers {
namespace {

using search::MergedLayers;
using search::PricedStagePlan;
using search::ReplicaShape;
using search::StageCosts;
using search::StageQuestion;

constexpr std::size_t kMostStages = 16;
constexpr int kMostColumns = 60;
constexpr double kFaster = 1.01;  // by which times are tried

/// Simulates replicas of these shapes over even stages, all with so many samples.
Result<std::optional<PricedStagePlan>> simulate(const StageQuestion& question,
                                                const MergedLayers& stages,
                                                const std::vector<ReplicaShape>& shapes,
                                                std::int64_t samples) {
  search::StagePlan plan;
  for (const ReplicaShape& shape : shapes) {
    search::StageReplica replica{{}, shape.micro_batch, samples};
    for (const search::ShapeStage& stage : shape.stages)
      replica.stages.push_back({stages.cut(stage.first), stages.cut(stage.end), stage.unit});
    plan.replicas.push_back(std::move(replica));
  }
  if (!place_stages(plan, *question.costs, search::StagePlacing::kByStage)) return std::nullopt;
  const search::StageSums sums(*question.costs);
  MOTLEY_ASSIGN(search::StagePrice price, search::StageEvaluator(sums).price(plan));
  if (!price.fits) return std::nullopt;
  return PricedStagePlan{std::move(plan), std::move(price)};
}

std::int64_t samples_each(std::int64_t batch, std::int64_t micro, int replicas) {
  const std::int64_t each = micro * replicas;
  return (batch + each - 1) / each * micro;
}

void keep_better(std::optional<PricedStagePlan>& best, std::optional<PricedStagePlan> other) {
  if (other && (!best || other->price.step < best->price.step)) best = std::move(other);
}

Result<std::optional<PricedStagePlan>> find_equal(const StageQuestion& question) {
  const StageCosts& costs = *question.costs;
  std::optional<PricedStagePlan> best;
  for (const std::int64_t micro : costs.micro_batches())
    for (std::size_t count = 1; count <= std::min(kMostStages, costs.layers()); ++count)
      for (int degree = 1; degree <= 8; degree *= 2) {
        auto stages = MergedLayers::even(costs, count);
        stages.set_micro_batches({micro});
        std::vector<ReplicaShape> shapes;
        for (std::size_t unit = 0; unit < costs.units().size(); ++unit) {
          const search::StageUnit& of = costs.units()[unit];
          if (of.degree != degree || of.recomputes || !costs.knows(unit, micro)) continue;
          ReplicaShape shape{{}, micro};
          for (std::size_t s = 0; s < count; ++s) shape.stages.push_back({s, s + 1, unit});
          const int fits = costs.pools()[of.pool].devices / (degree * static_cast<int>(count));
          shapes.insert(shapes.end(), static_cast<std::size_t>(fits), shape);
        }
        if (shapes.empty()) continue;
        const std::int64_t samples =
            samples_each(question.global_batch, micro, static_cast<int>(shapes.size()));
        MOTLEY_ASSIGN(auto priced, simulate(question, stages, shapes, samples));
        keep_better(best, std::move(priced));
      }
  return best;
}

/// Even pipelines of one kind of unit, and how many of them its pool holds.
struct UniformChoice {
  MergedLayers stages;
  ReplicaShape shape;
  std::size_t pool;
  int replicas;
};

std::vector<UniformChoice> uniform_choices(const StageCosts& costs) {
  std::vector<UniformChoice> choices;
  for (std::size_t unit = 0; unit < costs.units().size(); ++unit) {
    const search::StageUnit& of = costs.units()[unit];
    for (const std::int64_t micro : costs.micro_batches())
      for (std::size_t count = 1; count <= std::min(kMostStages, costs.layers()); ++count) {
        const int fits = costs.pools()[of.pool].devices / (of.degree * static_cast<int>(count));
        if (of.recomputes || fits == 0 || !costs.knows(unit, micro)) continue;
        UniformChoice choice{MergedLayers::even(costs, count), {{}, micro}, of.pool, fits};
        for (std::size_t s = 0; s < count; ++s)
          choice.shape.stages.push_back({choice.stages.cut(s), choice.stages.cut(s + 1), unit});
        choices.push_back(std::move(choice));
      }
  }
  return choices;
}

Result<std::optional<PricedStagePlan>> find_uniform(const StageQuestion& question) {
  const StageCosts& costs = *question.costs;
  const search::StageSums sums(costs);
  const search::ShapeSearch search(sums, {2.0});
  std::vector<UniformChoice> choices = uniform_choices(costs);
  std::erase_if(choices,
                [&](const UniformChoice& choice) { return !search.is_valid(choice.shape); });
  if (choices.empty()) return std::nullopt;
  std::vector<std::size_t> best(costs.pools().size());
  const auto samples_in = [&](double seconds) {
    std::vector<std::int64_t> most(costs.pools().size(), 0);
    for (std::size_t i = 0; i < choices.size(); ++i) {
      const UniformChoice& choice = choices[i];
      const std::int64_t does =
          choice.replicas * search.most_samples(choice.shape, seconds, question.global_batch);
      if (does <= most[choice.pool]) continue;
      most[choice.pool] = does;
      best[choice.pool] = i;
    }
    std::int64_t sum = 0;
    for (const std::int64_t each : most) sum += each;
    return sum;
  };
  double below = 1e-3, above = 1e-3;
  while (samples_in(above) < question.global_batch) above *= 2;
  for (int i = 0; i < 20; ++i) {
    const double middle = (below + above) / 2;
    (samples_in(middle) < question.global_batch ? below : above) = middle;
  }
  samples_in(above);
  search::StagePlan plan;
  std::int64_t left = question.global_batch;
  for (const std::size_t i : best) {
    const UniformChoice& choice = choices[i];
    const std::int64_t does = search.most_samples(choice.shape, above, question.global_batch);
    for (int r = 0; r < choice.replicas && left > 0 && does > 0; ++r) {
      search::StageReplica replica{{}, choice.shape.micro_batch, std::min(left, does)};
      for (const search::ShapeStage& stage : choice.shape.stages)
        replica.stages.push_back({stage.first, stage.end, stage.unit});
      left -= replica.samples;
      plan.replicas.push_back(std::move(replica));
    }
  }
  if (!place_stages(plan, costs, search::StagePlacing::kByStage)) return std::nullopt;
  const search::StageEvaluator evaluator(sums);
  MOTLEY_ASSIGN(search::StagePrice price, evaluator.price(plan));
  return PricedStagePlan{std::move(plan), std::move(price)};
}

/// So many replicas of so many samples each in a time, by shapes over even stages; empty: they do
/// not fit.
std::vector<ReplicaShape> fit_replicas(const search::ShapeSearch& search, double seconds,
                                       std::int64_t samples, std::int64_t micro, int replicas) {
  const std::vector<search::DevicePool>& pools = search.sums().costs().pools();
  std::vector<double> limits;
  std::vector<int> devices;
  for (const search::DevicePool& pool : pools) {
    limits.push_back(pool.devices);
    devices.push_back(pool.devices);
  }
  search::PackingLp lp(limits);
  std::vector<ReplicaShape> shapes;
  std::vector<search::ShapeOffer> offers;
  std::vector<double> prices;
  for (const search::DevicePool& pool : pools) prices.push_back(1.0 / pool.devices);
  for (int round = 0; round < kMostColumns; ++round) {
    const auto shape = search.cheapest({seconds, samples, micro, prices});
    // Prices that make every replica cost one or more prove that no more than they sum to fit.
    if (!shape || (round > 0 && shape->cost >= 1 - 1e-9)) break;
    shapes.push_back(shape->shape);
    offers.push_back({1, search.devices(shape->shape)});
    lp.add(1, std::vector<double>(offers.back().devices.begin(), offers.back().devices.end()));
    lp.solve();
    prices = lp.prices();
  }
  if (shapes.empty() || lp.solve() < replicas - 1e-9) return {};
  std::vector<ReplicaShape> chosen;
  const std::vector<int> counts = search::choose_replicas(offers, devices);
  for (std::size_t i = 0; i < counts.size(); ++i)
    chosen.insert(chosen.end(), static_cast<std::size_t>(counts[i]), shapes[i]);
  if (static_cast<int>(chosen.size()) < replicas) return {};
  chosen.resize(static_cast<std::size_t>(replicas));
  return chosen;
}

Result<std::optional<PricedStagePlan>> find_sailor(const StageQuestion& question) {
  const StageCosts& costs = *question.costs;
  // Where to begin: any plan of the space's corner.
  MOTLEY_ASSIGN(std::optional<PricedStagePlan> best, find_equal(question));
  if (!best) return best;
  int all = 0;
  for (const search::DevicePool& pool : costs.pools()) all += pool.devices;
  for (const std::int64_t micro : costs.micro_batches())
    for (std::size_t count = 1; count <= std::min(kMostStages, costs.layers()); ++count) {
      auto stages = MergedLayers::even(costs, count);
      stages.set_micro_batches({micro});
      const search::StageSums sums(stages);
      const search::ShapeSearch search(sums, {2.0}, {.one_layer_stages = true});
      for (int base = 1; base <= all; base *= 2)
        for (const int replicas : {base, 3 * base / 2}) {
          if (replicas * static_cast<int>(count) > all || (base == 1 && replicas != 1)) continue;
          const std::int64_t samples = samples_each(question.global_batch, micro, replicas);
          double seconds = best->price.step.value / kFaster;
          auto shapes = fit_replicas(search, seconds, samples, micro, replicas);
          while (!shapes.empty()) {
            MOTLEY_ASSIGN(auto priced, simulate(question, stages, shapes, samples));
            keep_better(best, std::move(priced));
            seconds = std::min(seconds, best->price.step.value) / kFaster;
            shapes = fit_replicas(search, seconds, samples, micro, replicas);
          }
        }
    }
  return best;
}

}  // namespace

std::string_view space_name(StageSpace space) {
  return space == StageSpace::kEqual     ? "equal"
         : space == StageSpace::kUniform ? "uniform"
                                         : "sailor";
}

Result<std::optional<PricedStagePlan>> find_restricted(StageSpace space,
                                                       const StageQuestion& question) {
  switch (space) {
    case StageSpace::kEqual:
      return find_equal(question);
    case StageSpace::kUniform:
      return find_uniform(question);
    case StageSpace::kSailor:
      return find_sailor(question);
  }
  return std::nullopt;
}

}  // namespace motley::peers
