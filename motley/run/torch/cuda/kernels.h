#pragma once

#include <memory>
#include <string>

#include "motley/base/result.h"
#include "motley/run/torch/operators/device_kernels.h"

namespace motley::run {

/// Compiles the kernels of operators/random_kernels.h for an architecture with NVRTC, in about a
/// second, without a device. "sm_90": for devices of that capability; "compute_90": PTX, for newer
/// ones too. Uses the CPUs' headers, embedded at build time; of the standard library they see
/// fixed-size integers, bit_cast, min and floor. Products are not fused with sums, so results equal
/// CPUs' to the bit. Runtime error "run.kernels", with the compiler's output.
Result<std::string> compile_kernels(const std::string& architecture);

/// Returns NVRTC's best architecture for a capability such as 90: its own, or the next lower PTX.
Result<std::string> kernel_architecture(int capability);

/// Compiles once per kind of device, at the first call.
std::unique_ptr<DeviceKernels> make_nvrtc_kernels();

}  // namespace motley::run
