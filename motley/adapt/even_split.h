#pragma once

#include "motley/adapt/baseline.h"

namespace motley::adapt {

/// The same number of samples on every device, as PyTorch's own data parallelism has it.
class EvenSplit : public Baseline {
 public:
  using Baseline::Baseline;

 protected:
  Wish wish(const policy::StepSeen& seen, const std::vector<std::int64_t>&) override {
    return {even_samples(devices(), seen.global_batch), "the same on every device"};
  }
};

}  // namespace motley::adapt
