#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "motley/run/torch/operators/random_kernels.h"

namespace motley::run {

/// Kernels of our own for devices that PyTorch has none for: libmotley_cuda.so brings those of
/// GPUs. They run on the device's current stream and need no memory. Throw c10::Error that names
/// the kernel.
class DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;
  virtual void draw(const DrawCall& call, at::Device device) const = 0;
  virtual void drop(const DropoutCall& call, at::Device device) const = 0;
};

/// From now on those of all devices but CPUs. Before anything is drawn; for good.
void set_device_kernels(const DeviceKernels& kernels);
/// c10::Error if nobody has set them.
const DeviceKernels& device_kernels(at::Device device);

/// Of a type that with_float_type knows, or of kInt64; none: another.
std::optional<ElementType> find_element_type(at::ScalarType type);

}  // namespace motley::run
