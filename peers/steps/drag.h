#pragma once

#include <vector>

#include "motley/base/result.h"
#include "motley/cost/fit/least_squares.h"

namespace motley::peers {

/// Estimates a group's *drag* (measured / model): measurements come in groups that share a host, a
/// zone or a day and differ from the model by one factor. From the ratios measured / predicted of a
/// group's members it is the geometric mean with a drag of 1 as one more member,
///   exp(sum log ratio / (n + 1)),
/// so a group of one is believed half, and an empty one has drag 1. This is the best linear
/// predictor of a random effect with the variance of a single measurement (Henderson, Biometrics
/// 1975). Ratios must be > 0.
///
/// Example: ratios 1.21 and 1.21: exp(2 log 1.21 / 3) = 1.21^(2/3) = 1.1355.
double estimate_drag(const std::vector<double>& ratios);

/// A measured value in a fit with drags.
struct GroupedTarget {
  double measured = 0;  ///< > 0
  int group = -1;       ///< its group, from 0; -1: none, drag 1
};

struct GroupedFit {
  std::vector<double> coefficients;
  std::vector<double> drags;  ///< one per group, up to the largest that occurs

  /// Returns a group's drag; 1 without a group or for one that was not in the fit.
  double drag(int group) const;
};

/// Fits coefficients x and drags such that measured[i] ~ drag[group[i]] (rows[i] . x): alternates
/// `fit_relative` of measured / drag and `estimate_drag` of the residuals, 50 times or until no
/// drag moves by 1e-9. Without groups it is `fit_relative`. Errors: those of `fit_relative`.
Result<GroupedFit> fit_with_drags(const std::vector<std::vector<double>>& rows,
                                  const std::vector<GroupedTarget>& targets,
                                  const cost::FitOptions& options = {});

}  // namespace motley::peers
