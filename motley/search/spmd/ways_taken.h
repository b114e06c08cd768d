#pragma once

#include <cstdint>
#include <vector>

#include "motley/search/spmd/bound_terms.h"
#include "motley/search/spmd/choice_problem.h"
#include "motley/search/spmd/prices.h"
#include "motley/synth/step/sharding.h"

namespace motley::search {

/// What a choice of ways takes by each of the bounds (bound_terms.h), for any weights of kinds of
/// devices and any shares: about what a bound's tables (choice_problem.h) say of it, by which good
/// weights are found. Work that is split alike has equal shares here, and forms that readers share
/// are counted as they are made.
class WaysTaken {
 public:
  /// Keeps nothing of what it is given. Of the objective: what a step has once, and the states.
  WaysTaken(const graph::Graph& graph, const SpmdSpace& space, const BoundTerms& terms,
            SpmdPrices& prices, const synth::Sharding& sharding, const SpmdObjective& objective);
  /// `kinds`: by class of the prices.
  std::vector<double> by_bound(const std::vector<BoundedKind>& kinds) const;

 private:
  /// All work of which as much is split, and which counts in the same bounds.
  struct Work {
    std::vector<PartTime> times;  // by class
    std::int64_t extent = 0;      // that is split; 0: whole on each device
    unsigned bounds = 0;
  };
  /// `count`: how often, of a micro-batch.
  void add_work(unsigned bounds, std::int64_t extent, std::vector<PartTime> times, double count);
  void add_whole(unsigned bounds, const std::vector<double>& seconds, double count);
  void add_operators(const graph::Graph& graph, const SpmdSpace& space, const BoundTerms& terms,
                     SpmdPrices& prices, const synth::Sharding& sharding);
  void add_updates(const graph::Graph& graph, const SpmdSpace& space, SpmdPrices& prices,
                   const synth::Sharding& sharding, int states);
  void add_changes(const graph::Graph& graph, const SpmdSpace& space, const BoundTerms& terms,
                   SpmdPrices& prices, const synth::Sharding& sharding);
  void add_exchange(unsigned bounds, double seconds);

  std::int64_t batch_ = 0;
  double once_ = 1;               // of a micro-batch
  std::vector<double> exchange_;  // by bound
  std::vector<Work> works_;
};

}  // namespace motley::search
