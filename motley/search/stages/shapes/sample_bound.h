#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "motley/search/stages/shapes/packing_lp.h"
#include "motley/search/stages/shapes/shape_search.h"

namespace motley::search {

/// Whether a number of samples is possible in a time, with fractional replicas.
struct SampleAnswer {
  bool is_possible = false;  ///< by `amounts` of the configurations; otherwise proved impossible
  /// In samples: of a device, by pool, then of a replica; from the proof, or from the optimum.
  std::vector<double> prices;
  std::vector<double> amounts;  ///< by configuration of ShapeColumns
};

/// The configurations found so far: columns of the master problem, shared by all questions.
class ShapeColumns {
 public:
  /// Returns false if it is known.
  bool add(const ReplicaShape& shape);
  const std::vector<ReplicaShape>& shapes() const { return shapes_; }

 private:
  std::vector<ReplicaShape> shapes_;
  std::set<ReplicaShape> known_;
};

/// Finds the most samples of fractional replicas of any configurations in time T:
///
///     max sum n_c x_c   subject to   sum of devices_c,p x_c <= devices of pool p,
///                                    sum of x_c <= most replicas
///
/// over all configurations c with n_c samples within T (ShapeSearch), by column generation. Prices
/// of devices follow from the configurations so far, and ShapeSearch::cheapest finds one whose
/// samples are worth more than its devices. Prices l with n_c <= l.devices_c for all configurations
/// and numbers of samples prove, by weak duality, that no plan does more than l.N samples in T,
/// whatever the origin of l. Rounding cannot invalidate a proof by more than ShapeSearch's
/// tolerance.
///
/// All n are covered without trying each: the least cost C(n) does not fall with n, so C(n) >= n
/// rules out all up to C(n), and the next try is the one after it. Prices that prove more than is
/// asked are first scaled up to the question, which makes these leaps long.
class SampleBound {
 public:
  /// `most_replicas`: limit of the plans.
  SampleBound(const ShapeSearch& search, ShapeColumns& columns, double most_replicas)
      : search_(&search), columns_(&columns), most_replicas_(most_replicas) {}

  /// Adds each pool's best configurations alone; called automatically if none is known.
  void seed(double seconds, std::int64_t samples);
  SampleAnswer ask(double seconds, std::int64_t samples);
  /// The same with the known configurations; false is no proof.
  bool is_known_possible(double seconds, std::int64_t samples);
  /// Adds configurations that are worth their devices at these prices (by pool, then of a replica).
  void collect(double seconds, std::int64_t samples, const std::vector<double>& prices);
  std::int64_t programs() const { return programs_; }  ///< dynamic programs run

 private:
  bool price(double seconds, std::int64_t samples, const std::vector<double>& prices);
  bool price_batch(double seconds, std::int64_t samples, std::int64_t micro,
                   const std::vector<double>& prices);
  void add_known(PackingLp& lp, double seconds, std::int64_t samples,
                 std::vector<std::size_t>& column_of, std::size_t& known) const;
  std::vector<double> limits() const;

  const ShapeSearch* search_;
  ShapeColumns* columns_;
  double most_replicas_;
  std::int64_t programs_ = 0;
  bool is_seeded_ = false;
  std::size_t next_batch_ = 0;  // where the last ones were found
  static constexpr double kFoundLeap = 1.1;
  double found_leap_ = kFoundLeap;  // in samples, after a configuration worth more than its price
};

/// Returns samples per second of a device, by pool (0: no unit there knows any micro-batch), such
/// that devices together never exceed the sum of their rates. With t_pl the least seconds of a
/// sample on a device of pool p in layer l, and any y_p >= 0 as the worth of a device's second, a
/// sample needs the sum over l of min over p of y_p t_pl, and a second of pool p provides y_p. Here
/// y_p = 1 / sum over l of t_pl, which is a device's rate if no kind is better at some layers than
/// at others.
std::vector<double> device_rates(const StageSums& sums);

/// Returns seconds that no plan of these costs beats, by device_rates without messages or waits; 0
/// if no unit knows any micro-batch.
double rate_bound(const StageSums& sums, std::int64_t samples);

}  // namespace motley::search
