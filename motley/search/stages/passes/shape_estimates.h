#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "motley/base/result.h"
#include "motley/search/stages/passes/mix.h"
#include "motley/search/stages/passes/search_space.h"

namespace motley::search {

/// What shapes and mixes take: by the model of a replica (ShapeModel) and, of shapes that were
/// learned, by what short simulations said of them.
class ShapeEstimates {
 public:
  /// The space must outlive it. `least`: seconds that no step undercuts.
  ShapeEstimates(const SearchSpace& space, double least) : space_(space), least_(least) {}

  double least() const { return least_; }

  /// Learns how much slower the simulator is than the model for what the shape does in a time, and
  /// when its stages end their passes. Keeps what it learned first.
  Result<void> learn(const ReplicaShape& shape, double seconds);

  /// Estimates the step of a replica when stages wait for each other as in 1F1B: all of them once,
  /// and the slowest of them for the other micro-batches.
  double estimate(const ReplicaShape& shape, std::int64_t samples) const;
  /// Collective and update of the first stage, whose last pass ends the others; the collective
  /// takes `slower` times what the model says.
  double after_passes(const ReplicaShape& shape, double slower = 1) const;
  /// Samples within a time, by the model and what was learned.
  std::int64_t expected_samples(const ReplicaShape& shape, double seconds) const;
  /// The same, where nothing was learned by what stages wait for each other.
  std::int64_t supposed_samples(const ReplicaShape& shape, double seconds) const;
  /// Simulates the passes of a replica alone; of many micro-batches the later ones take what some
  /// before took.
  Result<double> simulate_passes(StageReplica replica) const;

  /// What follows the passes begins when all replicas have ended them: the longest after_passes.
  double last_after(const ReplicaMix& mix) const;
  /// The time in which the mix does the batch.
  double seconds_of(const ReplicaMix& mix) const;
  /// What a mix's step takes if all replicas end their passes at once, by what was learned of them
  /// and the simulator's time of what follows.
  double expected_step(const ReplicaMix& mix) const;

 private:
  Result<double> simulate_alone(const ReplicaShape& shape, std::int64_t samples) const;
  Result<void> learn_ends(const ReplicaShape& shape);
  void spread(StageReplica& replica) const;

  const SearchSpace& space_;
  double least_;
  std::map<ReplicaShape, double> slower_;                    // simulated time over the model's
  std::map<ReplicaShape, std::vector<double>> after_stage_;  // from a stage's last backward on
};

}  // namespace motley::search
