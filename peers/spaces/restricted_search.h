#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "peers/spaces/stage_spaces.h"

namespace motley::peers {

/// Shared by the searches of restricted spaces: costs, and the best of the offered plans.
class RestrictedSearch {
 public:
  explicit RestrictedSearch(const search::StageQuestion& question)
      : question_(question), sums_(*question.costs) {}

  const search::StageCosts& costs() const { return *question_.costs; }
  const search::StageSums& sums() const { return sums_; }
  std::int64_t batch() const { return question_.global_batch; }
  int devices() const;                 ///< of all pools
  std::vector<int> degrees() const;    ///< of units, ascending
  std::size_t most_stages() const;     ///< per pipeline
  std::size_t ways(int degree) const;  ///< most ways for a pool's devices to share a stage
  /// Finds a unit; with `recomputes` only units that recompute.
  std::optional<std::size_t> unit(std::size_t pool, int degree, std::size_t way,
                                  bool recomputes = false) const;
  /// Checks that a smaller micro-batch exists only beside two full ones, as in the whole space.
  static bool divides(std::int64_t samples, std::int64_t micro_batch) {
    return samples % micro_batch == 0 || samples > 2 * micro_batch;
  }
  /// Splits the batch over replicas as evenly as possible.
  std::vector<std::int64_t> even_samples(std::size_t replicas) const;

  /// Returns infinity if there is none.
  double best_step() const;
  /// Simulates an unplaced plan if its replicas divide their samples; drops those without any.
  void offer(search::StagePlan plan, search::StagePlacing placing = search::StagePlacing::kByStage);
  search::StageOutcome finish(StageSpace space);

 private:
  const search::StageQuestion& question_;
  search::StageSums sums_;
  std::vector<search::PricedStagePlan> best_;  // fastest first
  std::int64_t simulated_ = 0;
  std::set<std::string> refused_;
};

void search_equal(RestrictedSearch& search);
void search_uniform(RestrictedSearch& search);
void search_amp(RestrictedSearch& search);
void search_sailor(RestrictedSearch& search);
void search_harp(RestrictedSearch& search);
void search_zorse(RestrictedSearch& search);

}  // namespace motley::peers
