#pragma once

#include <string>
#include <utility>
#include <vector>

#include "motley/search/stages/costs/stage_costs.h"

namespace motley::search {

/// Returns prefix sums over layers of a pass's seconds, with the smallest micro-batch on the first
/// unit that knows it; used to cut work evenly.
std::vector<double> sum_layers(const StageCosts& costs);

/// A chain of fewer, larger layers: layer i represents layers [cuts[i], cuts[i + 1]) of the base
/// costs, which must outlive it. Every plan over it is a plan over those.
class MergedLayers : public StageCosts {
 public:
  /// Weights shared by two layers: held twice, as other weights of the merged layers are not
  /// shared, or once, where merged layers with little else count as sharing all their weights.
  enum class Tied { kTwice, kOnce };
  /// Cuts increase from 0 to base.layers().
  MergedLayers(const StageCosts& base, std::vector<std::size_t> cuts, Tied tied = Tied::kTwice);
  /// Returns `count` layers (at most base.layers()) with times as equal as possible.
  static MergedLayers balanced(const StageCosts& base, std::size_t count);
  /// Returns `count` layers with numbers of base layers as equal as possible.
  static MergedLayers even(const StageCosts& base, std::size_t count);

  std::size_t cut(std::size_t layer) const { return cuts_[layer]; }
  void set_micro_batches(std::vector<std::int64_t> batches) { batches_ = std::move(batches); }

  std::size_t layers() const override { return cuts_.size() - 1; }
  const std::vector<DevicePool>& pools() const override { return base_->pools(); }
  const std::vector<StageUnit>& units() const override { return base_->units(); }
  const std::vector<std::int64_t>& micro_batches() const override { return batches_; }
  bool knows(std::size_t unit, std::int64_t micro) const override {
    return base_->knows(unit, micro);
  }
  std::vector<LayerWork> work(std::size_t unit, std::int64_t micro) const override;
  std::vector<LayerBytes> bytes(std::size_t unit) const override;
  Bytes held(std::size_t unit) const override { return base_->held(unit); }
  Bytes memory(std::size_t unit) const override { return base_->memory(unit); }
  std::optional<Hop> hop(HopEnd from, HopEnd to, HopReach reach, Bytes bytes) const override {
    return base_->hop(from, to, reach, bytes);
  }
  BytesPerSecond host_rate(std::size_t pool) const override { return base_->host_rate(pool); }
  std::optional<std::pair<std::size_t, std::size_t>> tied() const override;
  bool messages_block() const override { return base_->messages_block(); }
  const std::vector<std::string>& notes() const override { return base_->notes(); }

 private:
  const StageCosts* base_;
  std::vector<std::size_t> cuts_;
  Tied tied_;
  std::vector<std::int64_t> batches_;
};

}  // namespace motley::search
