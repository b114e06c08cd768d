#include "peers/stages/restricted.h"

#include <algorithm>
#include <cmath>

#include "motley/search/stages/packing_lp.h"
#include "motley/search/stages/whole_replicas.h"

namespace motley::peers {
namespace {

using search::LayerBytes;
using search::LayerWork;
using search::PricedStagePlan;
using search::ReplicaShape;
using search::StageCosts;
using search::StageQuestion;

constexpr std::size_t kMostStages = 16;
constexpr int kMostColumns = 60;
constexpr double kFaster = 1.01;  // by which times are tried

/// A model whose layers are stages already.
class EvenStages : public StageCosts {
 public:
  EvenStages(const StageCosts& base, std::size_t stages, std::int64_t micro_batch)
      : base_(base), batches_{micro_batch} {
    for (std::size_t s = 0; s <= stages; ++s) cuts_.push_back(s * base.layers() / stages);
  }
  std::size_t cut(std::size_t stage) const { return cuts_[stage]; }

  std::size_t layers() const override { return cuts_.size() - 1; }
  const std::vector<search::DevicePool>& pools() const override { return base_.pools(); }
  const std::vector<search::StageUnit>& units() const override { return base_.units(); }
  const std::vector<std::int64_t>& micro_batches() const override { return batches_; }
  bool knows(std::size_t unit, std::int64_t micro) const override {
    return base_.knows(unit, micro);
  }
  std::vector<LayerWork> work(std::size_t unit, std::int64_t micro) const override {
    const std::vector<LayerWork> all = base_.work(unit, micro);
    std::vector<LayerWork> sums(layers());
    for (std::size_t s = 0; s < layers(); ++s)
      for (std::size_t i = cuts_[s]; i < cuts_[s + 1]; ++i) {
        sums[s].forward += all[i].forward;
        sums[s].backward += all[i].backward;
        sums[s].update += all[i].update;
      }
    return sums;
  }
  std::vector<LayerBytes> bytes(std::size_t unit) const override {
    const std::vector<LayerBytes> all = base_.bytes(unit);
    std::vector<LayerBytes> sums(layers());
    for (std::size_t s = 0; s < layers(); ++s)
      for (std::size_t i = cuts_[s]; i < cuts_[s + 1]; ++i) {
        sums[s].states += all[i].states;
        sums[s].gradients += all[i].gradients;
        sums[s].kept += all[i].kept;
        sums[s].workspace = std::max(sums[s].workspace, all[i].workspace);
        sums[s].output = all[i].output;
      }
    return sums;
  }
  Bytes held(std::size_t unit) const override { return base_.held(unit); }
  std::optional<search::Hop> hop(search::HopEnd from, search::HopEnd to, search::HopReach reach,
                                 Bytes bytes) const override {
    return base_.hop(from, to, reach, bytes);
  }
  BytesPerSecond host_rate(std::size_t pool) const override { return base_.host_rate(pool); }
  std::optional<std::pair<std::size_t, std::size_t>> tied() const override { return std::nullopt; }
  const std::vector<std::string>& notes() const override { return base_.notes(); }

 private:
  const StageCosts& base_;
  std::vector<std::int64_t> batches_;
  std::vector<std::size_t> cuts_;
};

/// Simulates replicas of these shapes over even stages, all with so many samples.
Result<std::optional<PricedStagePlan>> simulate(const StageQuestion& question,
                                                const EvenStages& stages,
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
        const EvenStages stages(costs, count, micro);
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
      const EvenStages stages(costs, count, micro);
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
  return space == StageSpace::kEqual ? "equal" : "sailor";
}

Result<std::optional<PricedStagePlan>> find_restricted(StageSpace space,
                                                       const StageQuestion& question) {
  return space == StageSpace::kEqual ? find_equal(question) : find_sailor(question);
}

}  // namespace motley::peers
