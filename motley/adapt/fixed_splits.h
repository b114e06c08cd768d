#pragma once

#include "motley/adapt/baseline.h"

namespace motley::adapt {

/// The same number of samples on every device: PyTorch's own data parallelism, HetSeq (the same
/// maximum everywhere; the gradient is weighted by samples), AdaptDL (it chooses one local batch
/// for all). What they differ in is not the split.
class EvenSplit : public Baseline {
 public:
  using Baseline::Baseline;

 protected:
  Wish wish(const policy::StepSeen& seen, const std::vector<std::int64_t>&) override {
    return {even_samples(devices(), seen.global_batch), "the same on every device"};
  }
};

/// LB-BSP (Chen et al., arXiv 1806.02508) on GPUs: from the slowest to the fastest device, a few
/// samples a change, until that would turn them round. It balances computing alone.
class StepMover : public Baseline {
 public:
  using Baseline::Baseline;

 protected:
  Wish wish(const policy::StepSeen& seen, const std::vector<std::int64_t>& now) override;
};

}  // namespace motley::adapt
