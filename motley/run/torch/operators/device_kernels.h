#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "motley/run/torch/operators/random_kernels.h"

namespace motley::run {

/// Our own kernels where PyTorch has none; libmotley_cuda.so provides those of GPUs. They run on
/// the device's current stream and need no memory. They throw c10::Error with the kernel's name.
class DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;
  virtual void draw(const DrawCall& call, at::Device device) const = 0;
  virtual void drop(const DropoutCall& call, at::Device device) const = 0;
};

/// Sets the kernels of all devices but CPUs. Must precede any draw; permanent.
void set_device_kernels(const DeviceKernels& kernels);
/// Returns the kernels. Throws c10::Error if none are set.
const DeviceKernels& device_kernels(at::Device device);

/// Returns a type known to with_float_type, or kInt64; none for others.
std::optional<ElementType> find_element_type(at::ScalarType type);

}  // namespace motley::run
