#pragma once

#include <vector>

#include "motley/base/result.h"
#include "motley/cost/fit/least_squares.h"

namespace motley::peers {

/// Measurements come in groups that share a host, a zone or a day, and a group is slower or faster
/// than the model says by one factor: its *pace* (measured / model). From the ratios measured /
/// predicted of a group's members: the geometric mean, where a pace of 1 counts as one more member,
///   exp(sum log ratio / (n + 1)),
/// so that a group of one is believed half, and an empty one has the pace 1. This is the best
/// linear predictor of a random effect whose variance is that of a single measurement (Henderson,
/// Biometrics 1975); ratios must be > 0.
///
/// Example: ratios 1.21 and 1.21: exp(2 log 1.21 / 3) = 1.21^(2/3) = 1.1355.
double estimate_pace(const std::vector<double>& ratios);

/// A measured value in a fit with paces.
struct PacedTarget {
  double measured = 0;  ///< > 0
  int group = -1;       ///< its group, from 0; -1: none, pace 1
};

struct PacedFit {
  std::vector<double> coefficients;
  std::vector<double> paces;  ///< one a group, up to the largest that occurs

  /// 1 for no group and for one that was not in the fit.
  double pace(int group) const;
};

/// Coefficients x and paces such that measured[i] ~ pace[group[i]] (rows[i] . x): `fit_relative` of
/// measured / pace and `estimate_pace` of the residuals in turn, 50 times or until no pace moves by
/// 1e-9. Without groups it is `fit_relative`. Errors are those of `fit_relative`.
Result<PacedFit> fit_with_paces(const std::vector<std::vector<double>>& rows,
                                const std::vector<PacedTarget>& targets,
                                const cost::FitOptions& options = {});

}  // namespace motley::peers
