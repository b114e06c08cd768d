#include "motley/search/split/water_filling.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

namespace motley::search {
namespace {

using Setting = SplitEvaluator::Setting;

/// simulations allowed in the search after the model
constexpr std::int64_t kMaxPricings = 64;

/// Hill climbing by moving samples between devices, priced by the simulator; steps halve from an
/// eighth of the batch to one sample. Of identical moves one is priced; none is that makes a device
/// compute longer than the best split's step.
class Climb {
 public:
  Climb(const SplitSpace& space, PricedSplit start) : space_(space), best_(std::move(start)) {}

  Result<void> run() {
    for (std::int64_t step = std::max<std::int64_t>(1, space_.batch() / 8); step >= 1; step /= 2) {
      bool moved = true;
      while (moved) {
        MOTLEY_ASSIGN(moved, move_any(step));
      }
    }
    return {};
  }

  const PricedSplit& best() const { return best_; }
  std::int64_t pricings() const { return pricings_; }

 private:
  /// Returns when a device ends computing this many samples.
  double end(std::size_t device, std::int64_t samples) const {
    return space_.evaluator()
        .curves(best_.split.devices[device], Setting::kShared)
        .end.at(static_cast<double>(samples));
  }

  /// Returns devices by the end of their own compute, latest first.
  std::vector<std::size_t> latest_first() const {
    std::vector<std::size_t> order(best_.split.devices.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto own_end = [&](std::size_t i) { return end(i, best_.split.samples[i]); };
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return own_end(a) > own_end(b); });
    return order;
  }

  /// Type, node and samples; devices equal in these are interchangeable.
  using Likeness = std::tuple<std::size_t, NodeId, std::int64_t>;
  Likeness likeness(std::size_t device) const {
    const DeviceId id = best_.split.devices[device];
    return {space_.type_of(id), space_.problem().cluster->device(id).node,
            best_.split.samples[device]};
  }

  Result<bool> move_any(std::int64_t step) {
    const std::vector<std::size_t> order = latest_first();
    std::set<std::pair<Likeness, Likeness>> tried;
    for (const std::size_t from : order) {
      for (auto to = order.rbegin(); to != order.rend(); ++to) {
        if (from == *to || !may_move(from, *to, step)) continue;
        if (!tried.emplace(likeness(from), likeness(*to)).second) continue;
        if (pricings_ >= kMaxPricings) return false;
        MOTLEY_ASSIGN(const bool better, try_move(from, *to, step));
        if (better) return true;
      }
    }
    return false;
  }

  bool may_move(std::size_t from, std::size_t to, std::int64_t step) const {
    const BatchSplit& split = best_.split;
    return split.samples[from] - step >= space_.least() &&
           split.samples[to] + step <= space_.cap(split.devices[to], Setting::kShared) &&
           end(to, split.samples[to] + step) < best_.seconds;
  }

  Result<bool> try_move(std::size_t from, std::size_t to, std::int64_t step) {
    BatchSplit split = best_.split;
    split.samples[from] -= step;
    split.samples[to] += step;
    if (!space_.find_faults(split).empty()) return false;
    ++pricings_;
    MOTLEY_ASSIGN(const double seconds, price(space_, split));
    if (seconds >= best_.seconds) return false;
    best_ = {std::move(split), seconds};
    return true;
  }

  const SplitSpace& space_;
  PricedSplit best_;
  std::int64_t pricings_ = 0;
};

/// Is the split slower than the step model's bound over its devices, so that moves may help?
bool may_climb(const SplitSpace& space, const PricedSplit& split) {
  const auto bound = find_best_split_of(space, split.split.devices);
  return bound && split.seconds > model_step(space.evaluator(), *bound) * (1 + kSameStep);
}

}  // namespace

Result<SplitChoice> WaterFilling::choose(const Study& study) const {
  if (!study.search.best) {
    return SplitChoice{.split = {}, .seconds = {}, .why = study.space.explain_infeasible()};
  }
  PricedSplit best{*study.search.best, 0};
  MOTLEY_ASSIGN(best.seconds, price(study.space, best.split));
  SplitChoice choice{.split = {}, .seconds = {}, .why = {}, .considered = 1};
  for (const auto& baseline : {study.equal, study.single}) {
    if (baseline && baseline->seconds < best.seconds) best = *baseline;
  }
  if (best.split.devices.size() > 1 && may_climb(study.space, best)) {
    Climb climb(study.space, best);
    MOTLEY_RETURN_IF_ERROR(climb.run());
    if (climb.best().seconds < best.seconds) {
      choice.why.push_back(
          fmt::format("{} further splits were simulated, as exchanges inside the step hold devices "
                      "up; the best is {:.1f} % faster",
                      climb.pricings(), 100 * (best.seconds / climb.best().seconds - 1)));
    }
    best = climb.best();
    choice.considered += climb.pricings();
  }
  choice.split = std::move(best.split);
  choice.seconds = best.seconds;
  return choice;
}

}  // namespace motley::search
