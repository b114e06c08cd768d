#pragma once

#include <cstddef>
#include <string>

#include "motley/base/json_forward.h"
#include "motley/base/result.h"

namespace motley::adapt {

/// Tells a change from noise: the cumulative sum test to both sides (Page, Biometrika 41, 1954)
/// over residuals in standard deviations, of which 1 is taken off each and 5 count at most. A
/// change is seen where a sum passes 7: after two residuals of 5 or more, five of 2.5, one never.
/// Noise alone passes it once in millions of steps. Where something else delays a step now and
/// then, a far residual says less of a change: of n residuals with a far ones that nothing
/// followed each adds ln((n + 55) / (a + 1)) at most, between 1.5 and 4.
class ChangeWatch {
 public:
  /// How many of the last residuals show a change, this one included; 0: none is seen. After a
  /// change it begins anew.
  std::size_t observe(double residual);

  Json state() const;
  Result<void> restore(const Json& json, const std::string& where);
  static void fields(auto& it, auto& field) {  // states of before lack some
    field("above", it.above_.sum)("above_count", it.above_.count).maybe("above_far", it.above_.far);
    field("below", it.below_.sum)("below_count", it.below_.count).maybe("below_far", it.below_.far);
    field.maybe("seen", it.seen_).maybe("alone", it.alone_);
  }
  Result<void> check(const std::string& where) const;

 private:
  struct Side {
    double sum = 0;
    std::size_t count = 0;  // of residuals since it was 0
    double far = 0;         // of them
    bool passes(double residual, double most, double& alone);
  };
  Side above_, below_;
  double seen_ = 0, alone_ = 0;  // residuals, and far ones that no change followed
};

}  // namespace motley::adapt
