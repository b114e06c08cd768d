#include "motley/search/stages/costs/stage_sums.h"

#include <algorithm>

#include "motley/base/check.h"

namespace motley::search {

StageSums::StageSums(const StageCosts& costs) : costs_(&costs) {
  const std::size_t layers = costs.layers();
  for (std::size_t unit = 0; unit < costs.units().size(); ++unit) {
    ByteSums sums;
    sums.layers = costs.bytes(unit);
    MOTLEY_CHECK(sums.layers.size() == layers);
    sums.states = sums.gradients = sums.kept = {0};
    for (const LayerBytes& layer : sums.layers) {
      sums.states.push_back(sums.states.back() + layer.states.value);
      sums.gradients.push_back(sums.gradients.back() + layer.gradients.value);
      sums.kept.push_back(sums.kept.back() + layer.kept.value);
    }
    sums.workspace.resize(layers);
    for (std::size_t first = 0; first < layers; ++first) {
      std::int64_t most = 0;
      for (std::size_t i = first; i < layers; ++i) {
        most = std::max(most, sums.layers[i].workspace.value);
        sums.workspace[first].push_back(most);
      }
    }
    bytes_.push_back(std::move(sums));
  }
}

const WorkSums& StageSums::work(std::size_t unit, std::int64_t micro_batch) const {
  WorkSums& sums = work_[{unit, micro_batch}];
  if (!sums.forward.empty()) return sums;
  sums.forward = sums.backward = sums.update = {0};
  for (const LayerWork& layer : costs_->work(unit, micro_batch)) {
    sums.forward.push_back(sums.forward.back() + layer.forward.value);
    sums.backward.push_back(sums.backward.back() + layer.backward.value);
    sums.update.push_back(sums.update.back() + layer.update.value);
  }
  MOTLEY_CHECK(sums.forward.size() == costs_->layers() + 1);
  return sums;
}

bool StageSums::has_copy(std::size_t first, std::size_t end) const {
  const auto tied = costs_->tied();
  return tied && first <= tied->first && tied->first < end && first <= tied->second &&
         tied->second < end;
}

StageBytes StageSums::bytes(std::size_t unit, std::size_t first, std::size_t end) const {
  const ByteSums& sums = bytes_[unit];
  StageBytes bytes;
  bytes.fixed = costs_->held(unit).value + sums.states[end] - sums.states[first];
  if (has_copy(first, end)) bytes.fixed -= sums.layers[costs_->tied()->second].states.value;
  bytes.per_sample = sums.kept[end] - sums.kept[first];
  bytes.workspace = sums.workspace[first][end - first - 1];
  return bytes;
}

std::int64_t StageSums::gradients(std::size_t unit, std::size_t first, std::size_t end) const {
  const ByteSums& sums = bytes_[unit];
  std::int64_t bytes = sums.gradients[end] - sums.gradients[first];
  if (has_copy(first, end)) bytes -= sums.layers[costs_->tied()->second].gradients.value;
  return bytes * costs_->units()[unit].degree();
}

std::int64_t StageSums::most_in_flight(std::size_t unit, std::size_t first, std::size_t end,
                                       std::int64_t micro_batch, std::int64_t most) const {
  const StageBytes needed = bytes(unit, first, end);
  const std::int64_t left = memory(unit).value - needed.total(micro_batch, 0);
  if (left < 0) return 0;
  const std::int64_t each = micro_batch * needed.per_sample;
  return each == 0 ? most : std::min(most, left / each);
}

Bytes StageSums::output(std::size_t unit, std::size_t end) const {
  return bytes_[unit].layers[end - 1].output;
}

}  // namespace motley::search
