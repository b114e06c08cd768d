#pragma once

#include <memory>
#include <string>

#include "motley/base/result.h"
#include "motley/run/torch/operators/device_kernels.h"

namespace motley::run {

/// Machine code of the kernels in operators/random_kernels.h for an architecture, by NVRTC; needs
/// no device. "sm_90": for devices of that capability; "compute_90": PTX, for all from there on.
/// The text is that of the headers that CPUs are compiled with, which the build puts into the
/// library; of the standard library it sees integers of given size, bit_cast, min and floor.
/// Products are not fused with sums, so bits are those of CPUs. Runtime error "run.kernels" with
/// what the compiler said. About a second.
Result<std::string> compile_kernels(const std::string& architecture);

/// The best that NVRTC knows for a device of this capability, such as 90: its own, or PTX of the
/// largest below.
Result<std::string> kernel_architecture(int capability);

/// Compiles at the first call on a device's kind, for good.
std::unique_ptr<DeviceKernels> make_nvrtc_kernels();

}  // namespace motley::run
