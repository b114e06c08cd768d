#pragma once

#include "motley/adapt/baseline.h"

namespace motley::adapt {

/// Gives every device the same number of samples, as PyTorch's data parallelism does.
class EvenSplit : public Baseline {
 public:
  using Baseline::Baseline;

 protected:
  Wish wish(const policy::StepSeen& seen, const std::vector<std::int64_t>&) override {
    return {even_samples(devices(), seen.global_batch), "the same on every device"};
  }
};

}  // namespace motley::adapt
