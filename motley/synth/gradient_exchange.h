#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/graph/rules/strategy.h"
#include "motley/synth/stage_graphs.h"
#include "motley/synth/step/rank_step.h"
#include "motley/synth/update.h"

namespace motley::synth {

/// Sums of gradients over regions that hold the same parameter, each whole or in parts, cut by
/// their own shares. Where the parts of all holders begin and end, a parameter falls into
/// intervals; all devices that have an interval sum it, several intervals of the same devices
/// together
/// (`bucket_bytes`). Of a region whose devices all have the interval one gives it, the others
/// zeros.
class GradientExchange {
 public:
  /// What one device has of a gradient, as its region keeps the parameter.
  struct Share {
    std::size_t stage = 0, member = 0, rank = 0;
    ValueId parameter;  ///< in the stage's graph
    BufferId gradient;
    graph::Form form;
  };
  /// Where instructions go.
  struct Target {
    Bytes bucket_bytes;
    std::function<RankStep&(std::size_t stage, std::size_t member)> rank;
    std::function<Update&(std::size_t stage, std::size_t member)> update;
    std::function<GroupId(const std::vector<std::size_t>& ranks)> group;
  };

  /// `step` must outlive it.
  GradientExchange(const StagedStep& step, std::size_t ranks) : step_(step), counted_(ranks) {}

  void add(Share share);
  /// Writes exchanges and updates: first of what one region alone has, then bucket by bucket. Usage
  /// error (synth.unsupported) where a parameter is cut along different dimensions.
  Result<void> run(const Target& target);
  /// After `run`: gradients, or stretches of them, that count on a rank for the norm of all.
  const std::vector<BufferId>& counted(std::size_t rank) const { return counted_[rank]; }

 private:
  const StagedStep& step_;
  std::vector<std::string> names_;                    // of parameters, in the order of their first
  std::map<std::string, std::vector<Share>> shares_;  // by parameter
  std::vector<std::vector<BufferId>> counted_;        // by rank
};

}  // namespace motley::synth
