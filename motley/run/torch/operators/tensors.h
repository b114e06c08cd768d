#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "motley/base/dtype.h"
#include "motley/program/program.h"

namespace motley::run {

/// Returns PyTorch's element type; kNone has none (checked).
at::ScalarType scalar_type(DType dtype);
/// Inverse; empty for types that graphs do not have (quantised, ...).
std::optional<DType> find_dtype(at::ScalarType type);

/// Returns an uninitialised contiguous tensor of a buffer's dtype and shape.
at::Tensor allocate(const program::Buffer& buffer, at::Device device);
/// Allocates pinned host memory, which a GPU copies by itself.
at::Tensor allocate_pinned(const program::Buffer& buffer);

/// Views the same memory as real numbers: complex ones as flat pairs. Contiguous.
at::Tensor as_real(const at::Tensor& tensor);

/// Returns the first element as a double; waits for the device.
double read_number(const at::Tensor& tensor);

}  // namespace motley::run
