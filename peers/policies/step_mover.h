#pragma once

#include "motley/adapt/baseline.h"

namespace motley::peers {

/// LB-BSP (Chen et al., arXiv 1806.02508) on GPUs: moves a few samples per change from the slowest
/// to the fastest device until that would reverse them. It balances only compute.
class StepMover : public adapt::Baseline {
 public:
  using Baseline::Baseline;

 protected:
  Wish wish(const policy::StepSeen& seen, const std::vector<std::int64_t>& now) override;
};

}  // namespace motley::peers
