#pragma once

#include <c10/core/Device.h>

#include <vector>

#include "motley/base/units.h"
#include "motley/run/measure.h"

namespace motley::run {

/// Memory figures of a GPU and PyTorch's allocator after a program ran and its tensors were freed.
struct DeviceUse {
  Bytes total, free;          ///< of the GPU, by CUDA
  Bytes reserved, allocated;  ///< by the allocator, now: with caches; libraries' workspaces
  Bytes reserved_peak, allocated_peak;  ///< of the program's last step
};

/// Frees the allocator's unused memory and resets its peaks, before a measured program.
void prepare_device_use(c10::Device device);
DeviceUse read_device_use(c10::Device device);

/// Converts what the GPU holds beside tensors (cluster/framework.h) to operator times. The context
/// is all used memory that is not the allocator's (so includes other processes'), plus the
/// workspaces that libraries keep in the allocator. In a step with less than 256 MiB of tensors the
/// allocator's blocks of 2 and 20 MiB do not predict larger ones: their waste counts as context.
std::vector<OpTime> framework_times(const DeviceUse& use);

}  // namespace motley::run
