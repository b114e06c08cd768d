#pragma once

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
  std::string note;  ///< one line: how many, or why there are none
};

/// Asks the driver library (libcuda.so.1, opened when called; no toolkit is needed to build).
/// Creates no context. May take seconds on hosts with many devices.
CudaDevices list_cuda_devices();

}  // namespace motley::cluster
