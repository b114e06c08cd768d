#pragma once

#include <cstddef>
#include <string>

#include "motley/base/json_forward.h"
#include "motley/base/result.h"

namespace motley::adapt {

/// Distinguishes a change from noise: the two-sided cumulative sum test (Page, Biometrika 41, 1954)
/// over residuals in standard deviations. It takes 1 off each and counts 5 at most. A sum above 7
/// is a change: after two residuals of 5 or more, or five of 2.5, never after one. Noise alone
/// passes it once in millions of steps. Occasional delays make a far residual weaker evidence: with
/// a isolated far ones among n residuals, it adds at most ln((n + 55) / (a + 1)), within 1.5 and 4.
class ChangeWatch {
 public:
  /// Returns how many of the last residuals, with this one, show a change, then restarts; 0: none.
  std::size_t observe(double residual);

  Json state() const;
  Result<void> restore(const Json& json, const std::string& where);
  static void fields(auto& it, auto& field) {  // older states lack some
    field("above", it.above_.sum)("above_count", it.above_.count).maybe("above_far", it.above_.far);
    field("below", it.below_.sum)("below_count", it.below_.count).maybe("below_far", it.below_.far);
    field.maybe("seen", it.seen_).maybe("alone", it.alone_);
  }
  Result<void> check(const std::string& where) const;

 private:
  struct Side {
    double sum = 0;
    std::size_t count = 0;  // residuals since it was 0
    double far = 0;         // far ones among them
    bool passes(double residual, double most, double& alone);
  };
  Side above_, below_;
  double seen_ = 0, alone_ = 0;  // residuals, and isolated far ones
};

}  // namespace motley::adapt
