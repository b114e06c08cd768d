#pragma once

#include <functional>
#include <string>
#include <vector>

#include "motley/base/units.h"

namespace motley::cluster {

/// A CUDA device as the driver describes it; its position is the ordinal.
struct DriverDevice {
  std::string name;
  Bytes memory;
  std::string uuid;  ///< "GPU-" and 32 hex digits in groups; "": the driver does not say
};

struct CudaDevices {
  std::vector<DriverDevice> devices;
  /// The slowest way in which two of them reach each other, as Node::peers; "": not known, or there
  /// are not two.
  std::string peers = "";
  std::vector<std::string>
      notes;  ///< lines: how many, or why there are none; which reach which how
};

/// A function of a library by its name; null: it has none of that name.
using FindFunction = std::function<void*(const char* name)>;

/// Asks the driver library (libcuda.so.1) and, which two devices NVLink joins, NVIDIA's management
/// library (libnvidia-ml.so.1), both opened when called; no toolkit is needed to build. Creates no
/// context. May take seconds on hosts with many devices.
CudaDevices list_cuda_devices();

/// The same of libraries that are open; an empty one is not there.
CudaDevices list_cuda_devices(const FindFunction& driver, const FindFunction& management);

}  // namespace motley::cluster
