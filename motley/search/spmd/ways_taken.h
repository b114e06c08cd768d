#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "motley/search/spmd/bound_terms.h"
#include "motley/search/spmd/choice_problem.h"
#include "motley/search/spmd/prices.h"
#include "motley/synth/step/sharding.h"

namespace motley::search {

/// The times of a choice of ways by bound (bound_terms.h), for any weights of device kinds and any
/// shares. They approximate the bound's tables (choice_problem.h), to find good weights. Equally
/// split work has equal shares here, and each shared form counts once.
class WaysTaken {
 public:
  /// Copies what it needs. Uses `once` and the states of the objective.
  WaysTaken(const graph::Graph& graph, const SpmdSpace& space, const BoundTerms& terms,
            SpmdPrices& prices, const synth::Sharding& sharding, const SpmdObjective& objective);
  /// `kinds`: by class of the prices.
  std::vector<double> by_bound(const std::vector<BoundedKind>& kinds) const;

 private:
  /// Work with the same split that counts in the same bounds.
  struct Work {
    std::vector<PartTime> times;  // by class
    std::int64_t extent = 0;      // split extent; 0: whole on each device
    unsigned bounds = 0;
  };
  /// `count`: per micro-batch.
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
  double once_ = 1;               // per micro-batch
  std::vector<double> exchange_;  // by bound
  std::vector<Work> works_;
};

/// Weights of kinds of devices and of bounds (bound_terms.h), and the least that any ways take with
/// them.
struct BoundWeights {
  std::vector<double> kinds, bounds;
  double least = 0;
};

/// Returns the devices by class, with these weights of kinds.
using WeightedKinds = std::function<std::vector<BoundedKind>(const std::vector<double>&)>;

/// Searches nearly optimal weights for the seen ways: each kind in turn against all others, and for
/// these the best weights of bounds, of those in `holding` (as bits). Begins at these weights of
/// kinds, 0 for kinds that are not used. `least` is 0, without weights of bounds, if no ways are
/// possible.
BoundWeights best_weights(const std::vector<WaysTaken>& seen, const WeightedKinds& weighted,
                          std::vector<double> kinds, unsigned holding);

/// Returns the weights at this part of the way from one to the other.
BoundWeights between(const BoundWeights& from, const BoundWeights& to, double part);

}  // namespace motley::search
