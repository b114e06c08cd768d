#pragma once

#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/elastic/checkpoint_time.h"

namespace motley::peers {

using elastic::CheckpointSize;
using elastic::CheckpointTime;

struct CheckpointSample {
  CheckpointSize size;
  Seconds measured;   ///< > 0
  int campaign = -1;  ///< group with one drag (peers/steps/drag.h); -1: none
};

struct CheckpointFit {
  CheckpointTime model;
  std::vector<double> drags;  ///< of the campaigns: times are drag * estimate_checkpoint

  double drag(int campaign) const;
};

/// Fits three constants >= 0 with a drag per campaign. Errors: cost.fit, as `fit_with_drags`.
Result<CheckpointFit> fit_checkpoint(const std::vector<CheckpointSample>& samples);

}  // namespace motley::peers
