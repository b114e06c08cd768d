#pragma once

#include <cstddef>
#include <vector>

#include "motley/cost/step/step_curves.h"

namespace motley::cost {

/// Returns whether all curves have their points at the same samples.
bool share_points(const StepCurves& curves);

/// f of one device over its samples for given W (docs/algorithms.md, "Batch split"), fast for many
/// calls: between two points of the curves it is the maximum of a few lines, without those that
/// others dominate. Pieces are evaluated on demand, so one object serves one thread.
class StepRamp {
 public:
  struct Limits {
    double most = 0;  ///< largest number of samples used
    /// Whether the curves have common points; otherwise every call uses step_seconds.
    bool shares_points = false;
  };
  /// Curves and tails must outlive it.
  StepRamp(const StepCurves& curves, const std::vector<double>& tails, Limits limits);
  /// Returns step_seconds, bitwise equal.
  double at(double samples) const;
  /// Returns largest_samples, up to rounding of the seconds.
  double largest_samples(double seconds) const;

 private:
  /// begin + rise * share of the piece + tail, in this order.
  struct Line {
    double begin, rise, tail;
    double at(double share) const { return begin + rise * share + tail; }
  };
  /// Piece 0 is before the points, piece i after point i - 1; the last one is unbounded.
  struct Piece {
    double seconds = -1;              ///< at its begin; -1: not evaluated
    std::size_t first = 0, last = 0;  ///< its lines; empty: not evaluated
  };
  double begin_of(std::size_t piece) const;
  const Piece& with_lines(std::size_t piece) const;
  void keep_highest(std::size_t first, double end_share) const;
  double samples_of(std::size_t point) const { return curves_.end.points[point].first; }

  const StepCurves& curves_;
  const std::vector<double>& tails_;
  double most_, update_;
  mutable std::vector<Piece> pieces_;  ///< empty: the curves do not share their points
  mutable std::vector<Line> lines_;
};

}  // namespace motley::cost
