#pragma once

#include <map>

#include "motley/adapt/baseline.h"

namespace motley::peers {

/// Cannikin's split as published (Nie et al., Middleware 2024): an epoch with an even split, one
/// with samples in inverse ratio to the measured time of a sample, and from then on, at the
/// beginning of each epoch, the best split by straight lines, fitted to the mean times at each
/// number of samples that a device had: of the end of its backward pass, and of the beginning of
/// its first exchange, behind which all exchanges but the last one lie. Means, no forgetting.
class Cannikin : public adapt::Baseline {
 public:
  Cannikin(std::vector<adapt::DeviceLimits> devices, std::int64_t epoch_steps);

 protected:
  void learn(const policy::StepSeen& seen) override;
  Wish wish(const policy::StepSeen& seen, const std::vector<std::int64_t>& now) override;
  Json learned() const override;
  Result<void> restore_learned(const Json& json, const std::string& where) override;

 private:
  /// Sums over the steps with so many samples.
  struct Sums {
    double steps = 0, end = 0, first = 0;
  };
  cost::StepCurves fit_lines(const std::map<std::int64_t, Sums>& sums) const;
  std::vector<std::int64_t> inverse_split(const std::vector<std::int64_t>& now,
                                          std::int64_t batch) const;
  std::vector<std::int64_t> best_split(std::int64_t batch) const;

  std::int64_t epoch_steps_;
  std::int64_t steps_ = 0;
  std::int64_t planned_epoch_ = -1;
  std::vector<std::map<std::int64_t, Sums>> sums_;  // of each device, by its samples
  double early_ = 0, last_ = 0;                     // exchanges but the last one, and it: sums
};

}  // namespace motley::peers
