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
  std::string uuid;  ///< "GPU-" and 32 hex digits in groups; "": unknown
};

struct CudaDevices {
  std::vector<DriverDevice> devices;
  /// The slowest connection between two of them, as Node::peers; "": unknown or fewer than two.
  std::string peers = "";
  std::vector<std::string>
      notes;  ///< lines: the number of devices or why there are none; how devices reach each other
};

/// Finds a function of a library by its name; null if there is none.
using FindFunction = std::function<void*(const char* name)>;

/// Queries the driver library (libcuda.so.1) and, for NVLink, NVIDIA's management library
/// (libnvidia-ml.so.1), opened when called: building needs no toolkit. Creates no context. May take
/// seconds with many devices.
CudaDevices list_cuda_devices();

/// Queries open libraries; an empty one is missing.
CudaDevices list_cuda_devices(const FindFunction& driver, const FindFunction& management);

}  // namespace motley::cluster
