#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "motley/base/result.h"
#include "motley/cluster/cluster.h"
#include "motley/search/price/costs.h"

namespace motley::search {

/// What operators are expected to take; or what none of them takes less than: on devices that
/// exchange, or on one that does a step alone.
enum class Estimate { kUsual, kLeast, kLeastAlone };

/// Devices of which the costs say the same: what one takes for a program, the others take.
struct DeviceKind {
  std::vector<DeviceId> devices;
  Costs::ByWork costs;  ///< of operators by what they do
  /// Seconds of an operator (name with overload).
  double seconds(Estimate estimate, std::string_view name, DType dtype,
                 const cost::OperatorWork& work) const;
};

/// Devices of a region that are of one kind and have equal shares.
struct DeviceClass {
  int kind = 0;
  int rank = 0;   ///< of the first of them, which has the largest parts
  int count = 1;  ///< of them
  bool operator==(const DeviceClass&) const = default;
};

struct DeviceClasses {
  std::vector<DeviceClass> all;      ///< in order of first occurrence
  std::vector<std::size_t> of_rank;  ///< positions in `all`

  std::vector<std::size_t> ranks() const;  ///< one of each class
};

class DeviceKinds {
 public:
  /// Usage error (search.missing-profile) if nothing is known of a device's operators.
  static Result<DeviceKinds> find(const cluster::Cluster& cluster, const Costs& costs,
                                  const std::vector<DeviceId>& devices);

  const std::vector<DeviceKind>& all() const { return all_; }
  const DeviceKind& at(int kind) const { return all_[static_cast<std::size_t>(kind)]; }
  /// Of one of the devices.
  int of(DeviceId device) const { return of_device_[device.index()]; }
  /// Of some of the devices with shares.
  DeviceClasses classes(const std::vector<DeviceId>& devices,
                        const std::vector<double>& shares) const;

 private:
  std::vector<DeviceKind> all_;
  std::vector<int> of_device_;  // by id; -1: none of the devices
};

}  // namespace motley::search
