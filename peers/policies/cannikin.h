#pragma once

#include <map>

#include "motley/adapt/baseline.h"

namespace motley::peers {

/// Cannikin's split as published (Nie et al., Middleware 2024): an epoch with an even split, then
/// one with samples in inverse ratio to the measured time per sample. From then on each epoch
/// begins with the best split by straight lines, fitted to each device's mean times by number of
/// samples: the end of its backward pass, and the begin of its first exchange, after which come all
/// exchanges but the last. Means, without forgetting.
class Cannikin : public adapt::Baseline {
 public:
  Cannikin(std::vector<adapt::DeviceLimits> devices, std::int64_t epoch_steps);

 protected:
  void learn(const policy::StepSeen& seen) override;
  Wish wish(const policy::StepSeen& seen, const std::vector<std::int64_t>& now) override;
  Json learned() const override;
  Result<void> restore_learned(const Json& json, const std::string& where) override;

 private:
  /// Sums over the steps with one number of samples.
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
  double early_ = 0, last_ = 0;                     // sums: exchanges but the last one; the last
};

}  // namespace motley::peers
