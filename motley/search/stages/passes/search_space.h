#pragma once

#include <string_view>
#include <vector>

#include "motley/search/stages/costs/stage_sums.h"
#include "motley/search/stages/shapes/shape_search.h"
#include "motley/search/stages/stage_evaluator.h"
#include "motley/search/stages/stage_search.h"

namespace motley::search {

/// Plans by their number of replicas. Where there are more copies of a layer than one host has
/// devices, some lie in other hosts, and a ring over n of them sends 2 (n - 1) / n of the gradients
/// out of each.
struct ReplicaClass {
  double most = 0;    ///< replicas
  double rounds = 0;  ///< ShapeModel::exchange_rounds
};

/// What all passes of a search read: the question, and what is derived of it alone. For one thread,
/// as sums and shape searches keep what they looked up.
struct SearchSpace {
  /// The question and its costs must outlive it.
  explicit SearchSpace(const StageQuestion& of);
  SearchSpace(const SearchSpace&) = delete;
  SearchSpace& operator=(const SearchSpace&) = delete;

  const StageQuestion& question;
  const StageCosts& costs;
  StageSums sums;
  std::vector<ReplicaClass> classes;  ///< one or more, by rising number of replicas
  ShapeSearch free;                   ///< replicas that exchange nothing between hosts
  ShapeSearch ringed;                 ///< replicas of the last class
  StageEvaluator evaluator;
  std::vector<int> devices;  ///< by pool

  /// Is the pass of this name wanted? See StageQuestion::without.
  bool runs(std::string_view pass) const;
  /// Does any shape fit, however long it takes?
  bool has_shape() const;
  /// Are there so few devices, and no narrower limits, that plans are improved by single moves and
  /// proved?
  bool has_few_devices() const;
  /// May devices have several stages of a replica? Two units in turns have three stages at least.
  bool can_interleave() const;
  /// Are there enough devices of each pool?
  bool fits_devices(const ReplicaShape& shape) const;
  /// As many replicas as have first stages in one host, where these are on the shape's unit.
  int fills_host(const ReplicaShape& shape) const;
};

}  // namespace motley::search
