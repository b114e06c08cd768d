#include "peers/stages/restricted.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

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

/// AMP's ranks: for each stage the units that compute it, a replica each; empty: devices are left.
std::vector<std::vector<std::size_t>> units_by_stage(const StageCosts& costs, std::size_t count,
                                                     int degree, bool is_reversed) {
  std::vector<std::size_t> line;
  for (std::size_t unit = 0; unit < costs.units().size(); ++unit) {
    const search::StageUnit& of = costs.units()[unit];
    if (of.degree != degree || of.recomputes) continue;
    if (costs.pools()[of.pool].devices % degree != 0) return {};
    line.insert(line.end(), static_cast<std::size_t>(costs.pools()[of.pool].devices / degree),
                unit);
  }
  std::size_t devices = 0;
  for (const search::DevicePool& pool : costs.pools())
    devices += static_cast<std::size_t>(pool.devices);
  if (line.size() * static_cast<std::size_t>(degree) != devices || line.size() % count != 0)
    return {};
  if (is_reversed) std::reverse(line.begin(), line.end());
  std::vector<std::vector<std::size_t>> stages;
  for (std::size_t s = 0; s < count; ++s) {
    const auto begin = line.begin() + static_cast<std::ptrdiff_t>(s * (line.size() / count));
    stages.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(line.size() / count));
  }
  return stages;
}

/// Where layers are cut so that fill and (passes - 1) of the slowest stage take least, and that
/// time. All pairs (sum, slowest) of which none is better in both, stage by stage.
std::pair<std::vector<std::size_t>, double> cut_layers(
    const search::StageSums& sums, const std::vector<std::vector<std::size_t>>& stages,
    std::int64_t micro, double passes) {
  struct Label {
    double sum = 0, slowest = 0;
    std::vector<std::size_t> cuts = {};
  };
  const std::size_t layers = sums.costs().layers();
  std::vector<std::vector<Label>> at(layers + 1);
  at[0].push_back({});
  for (const std::vector<std::size_t>& units : stages) {
    const std::set<std::size_t> kinds(units.begin(), units.end());
    std::vector<std::vector<Label>> next(layers + 1);
    for (std::size_t first = 0; first < layers; ++first)
      for (std::size_t end = first + 1; end <= layers && !at[first].empty(); ++end) {
        double pass = 0;
        for (const std::size_t unit : kinds)
          pass = std::max(pass, sums.work(unit, micro).pass(first, end));
        for (const Label& label : at[first]) {
          Label made{label.sum + pass, std::max(label.slowest, pass), label.cuts};
          std::vector<Label>& here = next[end];
          const auto beats = [](const Label& a, const Label& b) {
            return a.sum <= b.sum && a.slowest <= b.slowest;
          };
          if (std::any_of(here.begin(), here.end(), [&](const Label& l) { return beats(l, made); }))
            continue;
          std::erase_if(here, [&](const Label& l) { return beats(made, l); });
          made.cuts.push_back(end);
          here.push_back(std::move(made));
        }
      }
    at = std::move(next);
  }
  std::pair<std::vector<std::size_t>, double> best{{}, INFINITY};
  for (const Label& label : at[layers]) {
    const double seconds = label.sum + (passes - 1) * label.slowest;
    if (seconds < best.second) best = {label.cuts, seconds};
  }
  return best;
}

Result<std::optional<PricedStagePlan>> find_amp(const StageQuestion& question) {
  const StageCosts& costs = *question.costs;
  const search::StageSums sums(costs);
  const search::StageEvaluator evaluator(sums);
  std::optional<PricedStagePlan> best;
  for (const std::int64_t micro : costs.micro_batches())
    for (std::size_t count = 1; count <= std::min(kMostStages, costs.layers()); ++count)
      for (int degree = 1; degree <= 8; degree *= 2)
        for (const bool is_reversed : {false, true}) {
          const auto stages = units_by_stage(costs, count, degree, is_reversed);
          bool is_known = !stages.empty();
          for (const std::vector<std::size_t>& units : stages)
            for (const std::size_t unit : units) is_known = is_known && costs.knows(unit, micro);
          if (!is_known) continue;
          const std::size_t replicas = stages.front().size();
          const std::int64_t samples =
              samples_each(question.global_batch, micro, static_cast<int>(replicas));
          const auto [cuts, least] =
              cut_layers(sums, stages, micro, static_cast<double>(samples / micro));
          if (best && least >= best->price.step.value) continue;
          search::StagePlan plan;
          for (std::size_t r = 0; r < replicas; ++r) {
            search::StageReplica replica{{}, micro, samples};
            for (std::size_t s = 0; s < count; ++s)
              replica.stages.push_back({s == 0 ? 0 : cuts[s - 1], cuts[s], stages[s][r]});
            plan.replicas.push_back(std::move(replica));
          }
          if (!place_stages(plan, costs, search::StagePlacing::kByStage)) continue;
          MOTLEY_ASSIGN(search::StagePrice price, evaluator.price(plan));
          if (price.fits) keep_better(best, PricedStagePlan{std::move(plan), std::move(price)});
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
         : space == StageSpace::kAmp     ? "amp"
                                         : "sailor";
}

Result<std::optional<PricedStagePlan>> find_restricted(StageSpace space,
                                                       const StageQuestion& question) {
  switch (space) {
    case StageSpace::kEqual:
      return find_equal(question);
    case StageSpace::kUniform:
      return find_uniform(question);
    case StageSpace::kAmp:
      return find_amp(question);
    case StageSpace::kSailor:
      return find_sailor(question);
  }
  return std::nullopt;
}

}  // namespace motley::peers
