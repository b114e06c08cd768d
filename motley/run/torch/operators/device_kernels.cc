#include "motley/run/torch/operators/device_kernels.h"

#include <c10/util/Exception.h>

namespace motley::run {

namespace {
const DeviceKernels* own_kernels = nullptr;
}  // namespace

void set_device_kernels(const DeviceKernels& kernels) { own_kernels = &kernels; }

const DeviceKernels& device_kernels(at::Device device) {
  TORCH_CHECK(own_kernels != nullptr, "no kernels of ours for ", device);
  return *own_kernels;
}

std::optional<ElementType> find_element_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return ElementType::kFloat;
    case at::kDouble:
      return ElementType::kDouble;
    case at::kHalf:
      return ElementType::kHalf;
    case at::kBFloat16:
      return ElementType::kBFloat16;
    case at::kLong:
      return ElementType::kInt64;
    default:
      return std::nullopt;
  }
}

}  // namespace motley::run
