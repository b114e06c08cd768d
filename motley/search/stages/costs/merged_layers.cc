#include "motley/search/stages/costs/merged_layers.h"

#include <algorithm>

namespace motley::search {

MergedLayers::MergedLayers(const StageCosts& base, std::vector<std::size_t> cuts, Tied tied)
    : base_(&base), cuts_(std::move(cuts)), tied_(tied), batches_(base.micro_batches()) {}

MergedLayers MergedLayers::even(const StageCosts& base, std::size_t count) {
  std::vector<std::size_t> cuts;
  for (std::size_t i = 0; i <= count; ++i) cuts.push_back(i * base.layers() / count);
  return {base, std::move(cuts)};
}

std::vector<double> sum_layers(const StageCosts& costs) {
  std::size_t unit = 0;
  const std::int64_t smallest = costs.micro_batches().front();
  while (unit + 1 < costs.units().size() && !costs.knows(unit, smallest)) ++unit;
  std::vector<double> sums = {0};
  for (const LayerWork& layer : costs.work(unit, smallest))
    sums.push_back(sums.back() + layer.forward.value + layer.backward.value);
  return sums;
}

MergedLayers MergedLayers::balanced(const StageCosts& base, std::size_t count) {
  const std::vector<double> sums = sum_layers(base);
  std::vector<std::size_t> cuts = {0};
  for (std::size_t i = 1; i < count; ++i) {
    // The next cut at or after its share of the time that leaves a layer for each that follows.
    const double share = sums.back() * static_cast<double>(i) / static_cast<double>(count);
    const auto at = std::lower_bound(sums.begin(), sums.end(), share) - sums.begin();
    cuts.push_back(
        std::clamp(static_cast<std::size_t>(at), cuts.back() + 1, base.layers() - (count - i)));
  }
  cuts.push_back(base.layers());
  return {base, std::move(cuts)};
}

std::vector<LayerWork> MergedLayers::work(std::size_t unit, std::int64_t micro) const {
  const std::vector<LayerWork> all = base_->work(unit, micro);
  std::vector<LayerWork> sums(layers());
  for (std::size_t s = 0; s < layers(); ++s)
    for (std::size_t i = cuts_[s]; i < cuts_[s + 1]; ++i) {
      sums[s].forward += all[i].forward;
      sums[s].backward += all[i].backward;
      sums[s].update += all[i].update;
    }
  return sums;
}

std::vector<LayerBytes> MergedLayers::bytes(std::size_t unit) const {
  const std::vector<LayerBytes> all = base_->bytes(unit);
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

std::optional<std::pair<std::size_t, std::size_t>> MergedLayers::tied() const {
  const auto pair = base_->tied();
  if (!pair || tied_ == Tied::kTwice) return std::nullopt;
  const auto merged = [&](std::size_t layer) {
    return static_cast<std::size_t>(std::upper_bound(cuts_.begin(), cuts_.end(), layer) -
                                    cuts_.begin()) -
           1;
  };
  const std::pair both(merged(pair->first), merged(pair->second));
  return both.first < both.second ? std::optional(both) : std::nullopt;
}

}  // namespace motley::search
