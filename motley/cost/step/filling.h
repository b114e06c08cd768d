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
/// one W (closed_form.h). A step of `tau` is possible exactly if the k largest finv_i(tau) sum to
/// the batch; the least such tau is a value of f (docs/algorithms.md, "Batch split"). f must not
/// fall.
class Filling {
 public:
  /// Identical devices. Each takes from `least` to `most` samples, or none.
  struct Crew {
    const StepRamp* ramp = nullptr;
    std::int64_t least = 1, most = 0;
    std::span<const DeviceId> members;  ///< in the order in which they are taken
    /// Whether members with samples may end with none if others would have too many.
    bool may_idle = false;
  };
  struct Goal {
    std::int64_t batch = 0;
    std::int64_t devices = 0;  ///< at most
  };
  /// Samples that each device of a crew can do within some time.
  struct Load {
    std::size_t crew = 0;
    std::int64_t samples = 0;
  };
  struct Solution {
    double seconds = 0;        ///< largest f of the loads
    std::vector<Load> loads;   ///< at most `devices` devices, at least the batch together
    std::int64_t surplus = 0;  ///< of samples over the batch; below 0: too few
  };

  /// The crews' references must outlive it.
  Filling(std::vector<Crew> crews, Goal goal) : crews_(std::move(crews)), goal_(goal) {}

  /// Returns the least number of devices that can do the batch within `seconds`; more than exist if
  /// none can. Never too many; rounding may make it too few.
  std::int64_t devices_needed(double seconds) const;

  /// Returns the best loads if their largest f, at least `floor`, is < `limit`. O(crews log batch).
  std::optional<Solution> solve(double limit, double floor) const;

  /// Returns the least f of all devices that must take part.
  double least_of_all() const;

  /// Assigns samples to devices: names the devices and takes back the surplus, always from the
  /// latest device, among equals from the highest id. Ordered by id, without idle devices.
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
