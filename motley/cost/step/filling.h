#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "motley/base/ids.h"
#include "motley/cost/step/step_ramp.h"

namespace motley::cost {

/// Water-filling in whole samples: minimises the largest f_i over at most k of some devices, for
/// one W (closed_form.h). A step of `tau` is possible exactly when the k largest finv_i(tau) sum to
/// the batch or more; the least such tau is found between the values that f takes
/// (docs/algorithms.md, "Batch split"). Nothing is assumed of f but that it does not fall.
class Filling {
 public:
  /// Devices that are identical. Each takes from `least` to `most` samples, or none.
  struct Crew {
    const StepRamp* ramp = nullptr;
    std::int64_t least = 1, most = 0;
    std::span<const DeviceId> members;  ///< in the order in which they are taken
    /// May those who take part end with none, where others are left with too much?
    bool may_idle = false;
  };
  struct Goal {
    std::int64_t batch = 0;
    std::int64_t devices = 0;  ///< at most
  };
  /// What each device of a crew can do within some time.
  struct Load {
    std::size_t crew = 0;
    std::int64_t samples = 0;
  };
  struct Solution {
    double seconds = 0;        ///< largest f of the loads
    std::vector<Load> loads;   ///< of at most `devices` devices, batch or more together
    std::int64_t surplus = 0;  ///< of their samples over the batch; below 0: they are too few
  };

  /// What the crews refer to must outlive it.
  Filling(std::vector<Crew> crews, Goal goal) : crews_(std::move(crews)), goal_(goal) {}

  /// Least number of devices that can do the batch within `seconds`; more than there are when none
  /// can. Never too many; rounding may make it too few.
  std::int64_t devices_needed(double seconds) const;

  /// The best loads if their largest f is below `limit`; f below `floor` counts as `floor`.
  /// O(crews * log(batch)).
  std::optional<Solution> solve(double limit, double floor) const;

  /// Least f that all have who must take part.
  double least_of_all() const;

  /// Who does how many: names the devices and takes back what exceeds the batch, always from the
  /// latest device, of equals the highest id. In order of ids, without those that have none.
  std::vector<std::pair<DeviceId, std::int64_t>> hand_out(const Solution& solution) const;

 private:
  double value(std::size_t crew, std::int64_t samples) const {
    return crews_[crew].ramp->at(static_cast<double>(samples));
  }
  std::int64_t clip(double samples, std::size_t crew) const;
  std::int64_t samples_within(std::size_t crew, double seconds) const;
  double least_value() const;
  double next_value(double seconds) const;
  Solution fill(double seconds) const;

  std::vector<Crew> crews_;
  Goal goal_;
};

}  // namespace motley::cost
