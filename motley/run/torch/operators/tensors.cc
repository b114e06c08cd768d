#include "motley/run/torch/operators/tensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/view_as_real.h>

#include <array>
#include <utility>

#include "motley/base/check.h"

namespace motley::run {

namespace {

constexpr std::array<std::pair<DType, at::ScalarType>, 12> kTypes = {{
    {DType::kF64, at::kDouble},
    {DType::kF32, at::kFloat},
    {DType::kF16, at::kHalf},
    {DType::kBF16, at::kBFloat16},
    {DType::kI64, at::kLong},
    {DType::kI32, at::kInt},
    {DType::kI16, at::kShort},
    {DType::kI8, at::kChar},
    {DType::kU8, at::kByte},
    {DType::kBool, at::kBool},
    {DType::kC64, at::kComplexFloat},
    {DType::kC128, at::kComplexDouble},
}};

}  // namespace

at::ScalarType scalar_type(DType dtype) {
  for (const auto& [ours, theirs] : kTypes)
    if (ours == dtype) return theirs;
  MOTLEY_CHECK(dtype != DType::kNone);
  return at::kFloat;
}

std::optional<DType> find_dtype(at::ScalarType type) {
  for (const auto& [ours, theirs] : kTypes)
    if (theirs == type) return ours;
  return std::nullopt;
}

at::Tensor allocate(const program::Buffer& buffer, at::Device device) {
  return at::empty(buffer.shape, at::TensorOptions(device).dtype(scalar_type(buffer.dtype)));
}

at::Tensor allocate_pinned(const program::Buffer& buffer) {
  return at::empty(
      buffer.shape,
      at::TensorOptions(at::kCPU).dtype(scalar_type(buffer.dtype)).pinned_memory(true));
}

at::Tensor as_real(const at::Tensor& tensor) {
  return tensor.is_complex() ? at::view_as_real(tensor).view({-1}) : tensor;
}

double read_number(const at::Tensor& tensor) { return tensor.flatten()[0].item().toDouble(); }

}  // namespace motley::run
