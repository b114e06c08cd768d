#pragma once

#include <cstddef>
#include <vector>

#include "motley/cost/step/step_curves.h"

namespace motley::cost {

/// Do all curves have their points at the same samples?
bool share_points(const StepCurves& curves);

/// f of one device over its samples for given W (docs/algorithms.md, "Batch split"), made to be
/// asked often: between two points of the curves it is the largest of a few lines, and those that
/// are below others all along are left out. What lies between two points is looked at when it is
/// asked for, so one object serves one thread.
class StepRamp {
 public:
  struct Limits {
    double most = 0;  ///< samples up to which it is asked
    bool shares_points =
        false;  ///< of the curves; where they do not it is step_seconds that is asked
  };
  /// Curves and tails must outlive it.
  StepRamp(const StepCurves& curves, const std::vector<double>& tails, Limits limits);
  /// step_seconds, to the bit.
  double at(double samples) const;
  /// largest_samples, up to rounding of the seconds.
  double largest_samples(double seconds) const;

 private:
  /// begin + rise * share of the piece + tail, in this order.
  struct Line {
    double begin, rise, tail;
    double at(double share) const { return begin + rise * share + tail; }
  };
  /// Piece 0 is all before the points, piece i lies behind point i - 1, the last one goes on.
  struct Piece {
    double seconds = -1;              ///< where it begins; -1: not asked for
    std::size_t first = 0, last = 0;  ///< its lines; none: not asked for
  };
  double begin_of(std::size_t piece) const;
  const Piece& with_lines(std::size_t piece) const;
  void keep_highest(std::size_t first, double end_share) const;
  double samples_of(std::size_t point) const { return curves_.end.points[point].first; }

  const StepCurves& curves_;
  const std::vector<double>& tails_;
  double most_, update_;
  mutable std::vector<Piece> pieces_;  ///< none: the curves do not share their points
  mutable std::vector<Line> lines_;
};

}  // namespace motley::cost
