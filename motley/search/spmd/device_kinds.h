#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "motley/base/result.h"
#include "motley/cluster/cluster.h"
#include "motley/search/price/costs.h"

namespace motley::search {

/// Operators' expected times, or lower bounds: on devices that exchange, or on one alone.
enum class Estimate { kUsual, kLeast, kLeastAlone };

/// Devices with equal costs, and therefore equal times.
struct DeviceKind {
  std::vector<DeviceId> devices;
  Costs::ByWork costs;  ///< operator times by work
  double seconds(Estimate estimate, std::string_view name, DType dtype,
                 const cost::OperatorWork& work) const;
};

/// Devices of a region with one kind and equal shares.
struct DeviceClass {
  int kind = 0;
  int rank = 0;   ///< of the first one, which has the largest parts
  int count = 1;  ///< number of devices
  bool operator==(const DeviceClass&) const = default;
};

struct DeviceClasses {
  std::vector<DeviceClass> all;      ///< in order of first occurrence
  std::vector<std::size_t> of_rank;  ///< indices in `all`

  std::vector<std::size_t> ranks() const;  ///< one per class
};

class DeviceKinds {
 public:
  /// Usage error (search.missing-profile) if a device's operators are unknown.
  static Result<DeviceKinds> find(const cluster::Cluster& cluster, const Costs& costs,
                                  const std::vector<DeviceId>& devices);

  const std::vector<DeviceKind>& all() const { return all_; }
  const DeviceKind& at(int kind) const { return all_[static_cast<std::size_t>(kind)]; }
  int of(DeviceId device) const { return of_device_[device.index()]; }
  DeviceClasses classes(const std::vector<DeviceId>& devices,
                        const std::vector<double>& shares) const;

 private:
  std::vector<DeviceKind> all_;
  std::vector<int> of_device_;  // by id; -1: none of the devices
};

}  // namespace motley::search
