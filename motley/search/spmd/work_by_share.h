#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "motley/search/spmd/prices.h"
#include "motley/search/spmd/space.h"

namespace motley::search {

using ShareRanges = std::vector<ShareRange>;  ///< by kind of devices

/// Compute of devices by the share of the fullest of their kind: bounds shares in plans, and finds
/// where to cut their ranges. `counts`: devices of each kind.
class WorkByShare {
 public:
  WorkByShare(const SpmdSpace& space, SpmdPrices& prices);

  /// Narrows shares: in a plan faster than `known` seconds, no share is so large that its device
  /// computes for longer, and none so small that the others' shares are too large.
  void narrow(const std::vector<int>& counts, double known, ShareRanges& shares) const;
  /// Cuts between the samples around the even ones, for the kind with the fewest; if each kind has
  /// one number of samples, at the even share. Absent if nothing can be cut.
  std::optional<std::pair<ShareRanges, ShareRanges>> cut(const std::vector<int>& counts,
                                                         const ShareRanges& shares) const;

 private:
  struct Work {
    std::vector<PartTime> times;  // by class
    std::int64_t extent = 0;      // 0: whole
  };
  /// A group of identical operators, and the work of each way.
  struct Operators {
    double count = 0;
    std::vector<Work> ways;
  };
  double least(std::size_t device_class, double share) const;
  std::vector<double> even_samples(const std::vector<int>& counts, const ShareRanges& shares) const;

  const std::int64_t batch_;
  const std::vector<DeviceClass> classes_;
  std::vector<Operators> operators_;
};

}  // namespace motley::search
