#pragma once

#include <c10/core/Device.h>

#include <vector>

#include "motley/base/units.h"
#include "motley/run/measure.h"

namespace motley::run {

/// What a GPU and PyTorch's allocator say when a program has run and its tensors are gone.
struct DeviceUse {
  Bytes total, free;                    ///< of the GPU, by CUDA
  Bytes reserved, allocated;            ///< by the allocator, now: caches; libraries' workspaces
  Bytes reserved_peak, allocated_peak;  ///< of the program's last step
};

/// Gives back what the allocator keeps unused and begins new peaks: before a program is measured
/// that read_device_use is to tell about.
void prepare_device_use(c10::Device device);
DeviceUse read_device_use(c10::Device device);

/// What the GPU holds beside tensors (cluster/framework.h), in the form of times of no operator.
/// The context is all that is used and is not the allocator's, so that of other processes, too, and
/// the workspaces that libraries keep in it. Of a step with less than 256 MiB of tensors the
/// allocator's blocks of 2 and 20 MiB say nothing about larger ones: what they waste counts to the
/// context.
std::vector<OpTime> framework_times(const DeviceUse& use);

}  // namespace motley::run
