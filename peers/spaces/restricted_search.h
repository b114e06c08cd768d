#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "peers/spaces/stage_spaces.h"

namespace motley::peers {

/// What the searches of restricted spaces share: costs, and the best of the plans that they offer.
class RestrictedSearch {
 public:
  explicit RestrictedSearch(const search::StageQuestion& question)
      : question_(question), sums_(*question.costs) {}

  const search::StageCosts& costs() const { return *question_.costs; }
  const search::StageSums& sums() const { return sums_; }
  std::int64_t batch() const { return question_.global_batch; }
  int devices() const;                 ///< of all pools
  std::vector<int> degrees() const;    ///< of units, ascending
  std::size_t most_stages() const;     ///< of a pipeline
  std::size_t ways(int degree) const;  ///< in which devices of a pool share a stage, at most
  /// Units that recompute count where `recomputes`, and only they.
  std::optional<std::size_t> unit(std::size_t pool, int degree, std::size_t way,
                                  bool recomputes = false) const;
  /// As in the whole space, a smaller micro-batch is formed beside two full ones only.
  static bool divides(std::int64_t samples, std::int64_t micro_batch) {
    return samples % micro_batch == 0 || samples > 2 * micro_batch;
  }
  /// Of as many replicas, as equal as can be.
  std::vector<std::int64_t> even_samples(std::size_t replicas) const;

  /// Infinite: there is none.
  double best_step() const;
  /// Simulates the plan, whose stages have no places yet, if all its replicas divide their samples;
  /// those without samples are left out.
  void offer(search::StagePlan plan, search::StagePlacing placing = search::StagePlacing::kByStage);
  search::StageOutcome finish(StageSpace space);

 private:
  const search::StageQuestion& question_;
  search::StageSums sums_;
  std::vector<search::PricedStagePlan> best_;  // first
  std::int64_t simulated_ = 0;
  std::set<std::string> refused_;
};

/// A space each.
void search_equal(RestrictedSearch& search);
void search_uniform(RestrictedSearch& search);
void search_amp(RestrictedSearch& search);
void search_sailor(RestrictedSearch& search);
void search_harp(RestrictedSearch& search);
void search_zorse(RestrictedSearch& search);

}  // namespace motley::peers
