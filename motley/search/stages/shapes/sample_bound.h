#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "motley/search/stages/shapes/packing_lp.h"
#include "motley/search/stages/shapes/shape_search.h"

namespace motley::search {

/// Are so many samples possible in a time? Relaxed: replicas in fractions.
struct SampleAnswer {
  bool is_possible = false;  ///< by `amounts` of the shapes; else proved impossible
  /// Of a device, by pool, then of a replica, in samples: those of the proof, or of the optimum.
  std::vector<double> prices;
  std::vector<double> amounts;  ///< by shape of ShapeColumns
};

/// The shapes that were found so far: columns of the master problem, shared by all its questions.
class ShapeColumns {
 public:
  /// False if it is known.
  bool add(const ReplicaShape& shape);
  const std::vector<ReplicaShape>& shapes() const { return shapes_; }

 private:
  std::vector<ReplicaShape> shapes_;
  std::set<ReplicaShape> known_;
};

/// The most samples that replicas of any shapes do in time T, replicas in fractions:
///
///     max sum n_c x_c   subject to   sum of devices_c,p x_c <= devices of pool p,
///                                    sum of x_c <= most replicas
///
/// over all shapes c with n_c samples within T (ShapeSearch). Column generation: prices of devices
/// from the shapes found so far, and a shape whose samples are worth more than its devices, found
/// by ShapeSearch::cheapest, joins them. Prices l with n_c <= l.devices_c for all shapes and
/// numbers of samples prove, by weak duality, that no plan does more than l.N samples in T,
/// whatever way they were found; rounding cannot make a proof wrong by more than ShapeSearch's
/// tolerance.
///
/// All n are covered without trying each: the least cost C(n) does not fall with n, so C(n) >= n
/// rules out all up to C(n), and the next to try is the one after it. Where the prices prove more
/// than is asked for they are scaled up to what is asked for first, which makes these leaps long.
class SampleBound {
 public:
  /// `most_replicas`: of the plans asked for.
  SampleBound(const ShapeSearch& search, ShapeColumns& columns, double most_replicas)
      : search_(&search), columns_(&columns), most_replicas_(most_replicas) {}

  /// Each pool's best shapes alone, as a start: done by what follows where no shape is known.
  void seed(double seconds, std::int64_t samples);
  SampleAnswer ask(double seconds, std::int64_t samples);
  /// The same by the shapes that are known already: false is no proof.
  bool is_known_possible(double seconds, std::int64_t samples);
  /// Adds shapes that are worth their devices at these prices (by pool, then of a replica).
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
  std::size_t next_batch_ = 0;  // where shapes were found last
  static constexpr double kFoundLeap = 1.1;
  double found_leap_ = kFoundLeap;  // in samples, after a shape that is worth more than its price
};

/// Samples a second of a device, by pool (0: no unit there knows any micro-batch), such that no
/// devices do more together than the sum of theirs, whoever computes what: with t_pl the least
/// seconds of a sample on a device of pool p in layer l, and any y_p >= 0 as what a device's second
/// is worth, a sample needs sum over l of min over p of y_p t_pl, and a second of pool p's gives
/// y_p. Here y_p = 1 / sum over l of t_pl, which is a device's rate where no kind is better at some
/// layers than at others.
std::vector<double> device_rates(const StageSums& sums);

/// Seconds that no plan of these costs beats, by device_rates: nothing sent, nothing waited for. 0
/// if no unit knows any micro-batch.
double rate_bound(const StageSums& sums, std::int64_t samples);

}  // namespace motley::search
