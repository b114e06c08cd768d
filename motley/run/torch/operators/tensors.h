#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "motley/base/dtype.h"
#include "motley/program/program.h"

namespace motley::run {

/// PyTorch's name of an element type; kNone has none (checked).
at::ScalarType scalar_type(DType dtype);
/// Inverse; empty for types that graphs do not have (quantised, ...).
std::optional<DType> find_dtype(at::ScalarType type);

/// Uninitialised contiguous tensor of a buffer's dtype and shape.
at::Tensor allocate(const program::Buffer& buffer, at::Device device);
/// The host's memory, from which a GPU copies by itself.
at::Tensor allocate_pinned(const program::Buffer& buffer);

/// The same memory as real numbers: complex ones as flat pairs, others as they are. Contiguous.
at::Tensor as_real(const at::Tensor& tensor);

/// The first element as a double, from any device (waits for it).
double read_number(const at::Tensor& tensor);

}  // namespace motley::run
